"""docs/measurements.md: a section for each experiment or measurement, with the command that printed its
figures and the machine it ran on. A new measurement replaces the section.
"""

import datetime
import os
from pathlib import Path

from lab import machine

FILE = Path(__file__).resolve().parents[2] / "docs/measurements.md"
HEADING = "\n## "


def record(title, command, text, file=FILE):
    """Writes a section: replaces the one with the same title, or appends it."""
    today = datetime.date.today().isoformat()
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions().items())
    about = f"{today}, {machine.machine()}, load average {os.getloadavg()[2]:.1f};\n{versions}"
    body = f"`{command}`\n\n{about}\n\n```\n{text.strip()}\n```\n"
    file.write_text(placed(file.read_text(), title, body))


def placed(document, title, body):
    """Returns a document with the body of a section replaced, or with the section appended."""
    head, *sections = document.split(HEADING)
    titles = [section.partition("\n")[0] for section in sections]
    section = f"{title}\n\n{body}"
    if title in titles:
        sections[titles.index(title)] = section
    else:
        sections.append(section)
    return HEADING.join([head.rstrip("\n") + "\n", *(one.rstrip("\n") + "\n" for one in sections)])
