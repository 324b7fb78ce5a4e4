"""The output of an experiment: text, plain tables, and claims that hold or do not."""

import textwrap


class Report:
    """Prints text at once, and keeps it with the claims that do not hold."""

    def __init__(self, short=False):
        self.short = short
        """True if the experiment must take seconds, for the tests."""
        self.text = ""
        self.failed = []

    def print(self, text):
        print("\n" + text, flush=True)
        self.text += text + "\n\n"

    def say(self, text):
        """Prints a paragraph."""
        self.print(textwrap.fill(text, 80, break_on_hyphens=False))

    def table(self, columns, rows):
        self.print(table(columns, rows))

    def claim(self, text, holds, seen=""):
        """Prints whether a claim holds, and the value observed."""
        line = f"{'holds' if holds else 'DOES NOT HOLD'}: {text}" + (f": {seen}" if seen else "")
        self.print(textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False))
        if not holds:
            self.failed.append(text)


def table(columns, rows):
    """Returns aligned lines: the first column left-aligned, the others right-aligned. A row may have
    fewer cells than there are columns."""
    cells = [[str(column) for column in columns]]
    cells += [[str(field) for field in [*row, *[""] * (len(columns) - len(row))]] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    lines = []
    for row in cells:
        fields = [row[0].ljust(widths[0])]
        fields += [field.rjust(width) for field, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(fields).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
