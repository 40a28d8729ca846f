"""What the entry point leads to: the plugin under its module's name, so that a conftest may name it as well."""

pytest_plugins = ("relay.testing.plugin",)
