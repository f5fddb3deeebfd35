"""Every setting: its default, its meaning and its check; and how a configuration is read."""
