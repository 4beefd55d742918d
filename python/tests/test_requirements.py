import os
import tempfile
import unittest

from longshore import DefinitionError, Image


class Requirements(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def test_files_that_a_file_names_are_read_from_beside_it(self) -> None:
        self.write('deep/base.txt', '\ufeffsix==1.17.0\n-r more.txt\n')
        self.write('deep/more.txt', 'numpy\n-r base.txt\n')
        self.write('constraints.txt', 'numpy<3  # an old one\n--index-url https://x/y\n')
        path = self.write('requirements.txt', '-r deep/base.txt\n--constraint=constraints.txt\n-c https://x/c.txt\ntorch\n')
        self.assertEqual(
            Image(python_packages=path).python_packages,
            ['six==1.17.0', 'numpy', 'constraint: numpy<3', '--index-url https://x/y', '-c https://x/c.txt', 'torch'],
        )
        self.assertEqual(Image(python_packages=['pip', '-r ' + path]).python_packages[:2], ['pip', 'six==1.17.0'])

    def test_lines_go_on_behind_a_backslash_and_comments_go(self) -> None:
        path = self.write('r.txt', '# all\na==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n\nb @ https://x/b#egg=b # why\nc; python_version < "4"\n')
        self.assertEqual(
            Image(python_packages=path).python_packages,
            ['a==1 --hash=sha256:1 --hash=sha256:2', 'b @ https://x/b#egg=b', 'c; python_version < "4"'],
        )

    def test_a_file_that_is_missing_and_a_package_of_this_folder_are_named(self) -> None:
        path = self.write('r.txt', 'six\n-r no.txt\n')
        with self.assertRaisesRegex(DefinitionError, 'cannot read .*/no.txt: No such file'):
            Image(python_packages=path)
        for line in ('./lib', '-e .', '-e lib/mine', '../x', 'lib/y', 'wheels/z-1-py3-none-any.whl', '/opt/x'):
            with self.subTest(line), self.assertRaisesRegex(DefinitionError, 'line 1 of .*a build has no files'):
                Image().add_python_packages(self.write('r.txt', line))
        self.assertEqual(Image(python_packages=['-e git+https://x/y']).python_packages, ['-e git+https://x/y'])

    def test_a_list_for_pip_install_is_told_with_the_way_out(self) -> None:
        with self.assertRaisesRegex(DefinitionError, r"pip_install\('a', 'b'\), or a list to add_python_packages"):
            Image().pip_install(['a', 'b'])  # type: ignore[arg-type]

    def test_each_call_is_a_layer(self) -> None:
        added = Image(python_packages=['a']).pip_install('b', 'c').pip_install('d').added
        self.assertEqual([(step['command'], step['layer']) for step in added], [('b', 1), ('c', 1), ('d', 2)])


if __name__ == '__main__':
    unittest.main()
