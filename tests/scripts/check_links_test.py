"""scripts/check_links.py on small trees."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_links.py"


class CheckLinks(unittest.TestCase):
    def run_on(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "project"
            (root / "docs").mkdir(parents=True)
            (root / "docs" / "there.md").write_text("")
            (root / "docs" / "page.md").write_text(text)
            (root.parent / "outside.md").write_text("")
            return subprocess.run([sys.executable, "-B", SCRIPT, root], capture_output=True, text=True, check=False)

    def test_good_links_pass(self):
        done = self.run_on("[a](there.md) [b](../docs/there.md#part) [c](https://none.example) [d](#part) `[e](none.md)`")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 links", done.stdout)

    def test_a_dead_link_is_named(self):
        done = self.run_on("text [a](there.md) and\n[b](gone.md#part)")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "docs/page.md: links to gone.md#part, which is not there\n")

    def test_a_link_must_stay_inside(self):
        done = self.run_on("[a](../../outside.md)")
        self.assertEqual(done.returncode, 1)
        self.assertIn("outside the project", done.stderr)


if __name__ == "__main__":
    unittest.main()
