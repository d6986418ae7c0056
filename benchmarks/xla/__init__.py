"""The modules that XLA's developers measure their CPU backend with, on hloom and XLA: `python -m benchmarks.xla`."""
