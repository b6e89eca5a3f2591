"""Commands: flags, environment, configuration."""
