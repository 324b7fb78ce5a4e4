"""Tests of document.py."""

import unittest

from lab.document import placed

DOCUMENT = "# All\n\nAbout.\n\n## one\n\nfirst\n\n## two\n\nsecond\n"


class Document(unittest.TestCase):
    def test_replaces_section_in_place(self):
        changed = placed(DOCUMENT, "one", "new\n")
        self.assertEqual(changed, DOCUMENT.replace("first", "new"))
        self.assertEqual(placed(changed, "one", "first\n"), DOCUMENT)

    def test_appends_new_section(self):
        self.assertEqual(placed(DOCUMENT, "three", "third\n"), DOCUMENT + "\n## three\n\nthird\n")
        self.assertEqual(placed("# All\n", "one", "first\n"), "# All\n\n## one\n\nfirst\n")


if __name__ == "__main__":
    unittest.main()
