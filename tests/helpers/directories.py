"""What lies in a directory, and things of a user's that are put there."""


def tree(directory):
    """Each entry below it: the bytes of a file, where a link leads."""
    return {
        str(path.relative_to(directory)): path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }


def place(path, kind, victim):
    """Something of the user's; a link leads to his file elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "file":
            path.write_bytes(b"mine\n")
        case "link":
            path.symlink_to(victim)
        case "directory":
            path.mkdir()
            (path / "mine").write_bytes(b"mine\n")
