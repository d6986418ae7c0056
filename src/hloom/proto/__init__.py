"""HLO modules as XLA's protocol buffers."""
