"""Tests of the file of results."""

import unittest

from lab.document import placed

DOCUMENT = "# All\n\nAbout.\n\n## one\n\nfirst\n\n## two\n\nsecond\n"


class Document(unittest.TestCase):
    def test_a_section_is_replaced_where_it_stands(self):
        changed = placed(DOCUMENT, "one", "new\n")
        self.assertEqual(changed, DOCUMENT.replace("first", "new"))
        self.assertEqual(placed(changed, "one", "first\n"), DOCUMENT)

    def test_a_new_section_comes_last(self):
        self.assertEqual(placed(DOCUMENT, "three", "third\n"), DOCUMENT + "\n## three\n\nthird\n")
        self.assertEqual(placed("# All\n", "one", "first\n"), "# All\n\n## one\n\nfirst\n")


if __name__ == "__main__":
    unittest.main()
