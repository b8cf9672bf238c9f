"""``imem doctor``: checks of settings, servers and data, and how to mend what they find."""
