"""A kill at each instant of an action that changes the disk."""

import sys

# What changes the disk, wherever it is called from; serialize_file is that of safetensors.
CHANGES = {"mkdir", "open", "write", "serialize_file", "fsync", "replace", "unlink", "rmdir", "symlink"}


def killed_before_change(number, action, changes=CHANGES):
    """Whether `action` was stopped, as by a kill, before it had changed the disk so many times."""
    count = 0

    def watch(frame, event, function):
        nonlocal count
        count += event == "c_call" and function.__name__ in changes
        if count == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
