"""Support of HLO text in editors: a server of the Language Server Protocol (`hloom lsp`)."""
