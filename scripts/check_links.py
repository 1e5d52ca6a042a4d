#!/usr/bin/env python3
"""Fails when a relative link of a Markdown file points to nothing.

usage: check_links.py [ROOT]
"""
import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def faults(root):
    """(messages, number of links looked at) of the Markdown files that git knows, or all without git."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=root, text=True,
                            capture_output=True, check=False)
    files = ([root / name for name in listed.stdout.split("\n") if name] if listed.returncode == 0
             else root.rglob("*.md"))
    found, links = [], 0
    for file in sorted(files):
        if not file.exists():
            continue
        for target in LINK.findall(CODE.sub("", file.read_text(encoding="utf-8"))):
            if "://" in target or target.startswith(("#", "mailto:")):
                continue
            links += 1
            path = (file.parent / target.split("#")[0]).resolve()
            name = file.relative_to(root)
            if not path.exists():
                found.append(f"{name}: links to {target}, which is not there")
            elif not path.is_relative_to(root):
                found.append(f"{name}: links to {target}, outside the project")
    return found, links


def main():
    root = (Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent).resolve()
    found, links = faults(root)
    for message in found:
        print(message, file=sys.stderr)
    if found:
        return 1
    print(f"links: {links} links lead somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
