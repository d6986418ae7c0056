"""HLO text in editors: what stands where, errors, and a server of the Language Server Protocol (`hloom lsp`)."""
