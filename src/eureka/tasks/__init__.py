"""Multi-step tasks that know where their plateaus must be (`task.Task`), chosen by name (`registry.TASKS`)."""
