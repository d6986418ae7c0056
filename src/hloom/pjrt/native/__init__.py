"""Native code of the plugin, in native Python: calls that need no Python read and write the words of records."""
