"""Prints docs/python-reference.md: the public names of python/longshore, with their parameters and docstrings. The
source is read, not imported, so that every Python from 3.8 on prints the same bytes.
"""

import ast
import os
import re
import sys

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'python', 'longshore')

HEAD = """# Python reference

Public names of the module `longshore`, from its source. [python.md](python.md) explains them with examples.
`npm run generate` writes this page.
"""

GROUPS = (
    ('Decorators', ('endpoint', 'task_queue', 'function', 'schedule', 'asgi', 'realtime')),
    ('Decorated functions', ('Endpoint', 'TaskQueue', 'Function', 'Schedule', 'Asgi', 'Realtime')),
    (
        'Parameters of decorators',
        ('Image', 'Volume', 'CloudBucket', 'CloudBucketConfig', 'Secret', 'Pool')
        + ('QueueDepthAutoscaler', 'TaskPolicy', 'GpuType', 'PythonVersion', 'fill_once'),
    ),
    (
        'Pods and sandboxes',
        ('Pod', 'PodInstance', 'ReadinessProbe', 'LLM', 'TokenPressureAutoscaler', 'Sandbox', 'SandboxInstance')
        + ('SandboxProcessManager', 'SandboxProcess', 'SandboxProcessStream', 'SandboxProcessResponse')
        + ('SandboxFileSystem', 'SandboxFileInfo'),
    ),
    ('In a handler', ('context', 'Context', 'interruption', 'Interruption', 'Map', 'Queue', 'Signal', 'Output')),
    ('From any program', ('Client', 'Deployment', 'Task', 'get_task')),
    ('Errors', ()),
)


DECORATED = GROUPS[1][1]
#: Methods for the command line, and for other modules of the package.
INTERNAL = ('described', 'ask')
#: Classes that apps get from methods, and that the package does not export.
OF_METHODS = {
    'SandboxFileInfo': 'sandbox_files',
    'SandboxFileSystem': 'sandbox_files',
    'SandboxProcessManager': 'processes',
    'SandboxProcessResponse': 'processes',
    'SandboxProcessStream': 'processes',
}
#: A line of a docstring that may explain parameters.
PARAMETER = re.compile(r'([a-z_]+(?:, [a-z_]+)*): ')


class Sources:
    """Modules of the package, each read once."""

    def __init__(self):
        self.texts = {}
        self.trees = {}

    def tree(self, module):
        if module not in self.trees:
            with open(os.path.join(PACKAGE, module + '.py'), encoding='utf-8') as file:
                self.texts[module] = file.read()
            self.trees[module] = ast.parse(self.texts[module])
        return self.trees[module]

    def text(self, module, node):
        return re.sub(r'\s+', ' ', ast.get_source_segment(self.texts[module], node) or '').strip()

    def find(self, module, name):
        """The node of a name, and its module: an imported name is followed."""
        found = None
        for node in statements(self.tree(module).body):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                # The last one of several overloads has the docstring.
                found = node
            elif isinstance(node, ast.ImportFrom) and node.level == 1 and name in [one.name for one in node.names]:
                return self.find(node.module, name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                    found = node
        if found is None:
            raise SystemExit('%s.py defines no %s' % (module, name))
        return found, module


def statements(body):
    """Statements of a module, those of its conditions too."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            for inner in node.body + node.orelse:
                yield inner


def homes(sources):
    """Modules of the names, as `__init__` has them."""
    for node in sources.tree('__init__').body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_HOMES':
            return ast.literal_eval(node.value)
    raise SystemExit('__init__.py has no _HOMES')


def signature(sources, module, name, node, skip_self):
    """`name(a, *, b=1) -> int`, one parameter a line when it is long."""
    given = node.args
    plain = given.posonlyargs + given.args
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    parts = []
    for index, (argument, default) in enumerate(zip(plain, defaults)):
        if index == 0 and skip_self:
            continue
        parts.append(parameter(sources, module, argument, default))
    if given.vararg is not None:
        parts.append('*' + parameter(sources, module, given.vararg, None))
    elif given.kwonlyargs:
        parts.append('*')
    for argument, default in zip(given.kwonlyargs, given.kw_defaults):
        parts.append(parameter(sources, module, argument, default))
    if given.kwarg is not None:
        parts.append('**' + parameter(sources, module, given.kwarg, None))
    result = '' if node.returns is None else ' -> ' + sources.text(module, node.returns)
    start = 'async ' if isinstance(node, ast.AsyncFunctionDef) else ''
    line = '%s%s(%s)%s' % (start, name, ', '.join(parts), result)
    if len(line) <= 100:
        return line
    return '%s%s(\n%s\n)%s' % (start, name, '\n'.join('    %s,' % part for part in parts), result)


def parameter(sources, module, argument, default):
    text = argument.arg
    if argument.annotation is not None:
        text += ': ' + sources.text(module, argument.annotation)
    if default is not None:
        text += (' = ' if argument.annotation is not None else '=') + sources.text(module, default)
    return text


def docstring(node):
    """As it is indented against its own quotes."""
    text = ast.get_docstring(node, clean=False)
    if text is None:
        return ''
    margin = ' ' * node.body[0].col_offset
    return '\n'.join(line[len(margin) :] if line.startswith(margin) else line.strip() for line in text.split('\n')).strip()


def prose(node, parameters=()):
    """The docstring, with indented lines as a block of code, and lines that explain parameters as a list."""
    lines = docstring(node).split('\n')
    out = []
    is_code = is_listed = False
    for index, line in enumerate(lines):
        starts = line.startswith('    ') and (index == 0 or lines[index - 1] == '')
        if not is_code and starts:
            out.append('```python')
            is_code = True
        elif is_code and line != '' and not line.startswith('    '):
            while out[-1] == '':
                out.pop()
            out.extend(['```', ''])
            is_code = False
        if is_code:
            out.append(line[4:])
            continue
        match = PARAMETER.match(line)
        if match and all(name in parameters for name in match.group(1).split(', ')):
            if out and out[-1] != '' and not is_listed:
                out.append('')
            is_listed = True
            out.append('- `%s`: %s' % (match.group(1).replace(', ', '`, `'), line[match.end() :]))
            continue
        is_listed = is_listed and line != ''
        out.append('  ' + line if is_listed else line)
    if is_code:
        out.append('```')
    return '\n'.join(out).strip()


def names_of(node):
    """Names of the parameters of a function, or of a class."""
    if isinstance(node, ast.ClassDef):
        node = next((one for one in node.body if getattr(one, 'name', '') == '__init__'), None)
    if node is None:
        return ()
    given = node.args
    return tuple(one.arg for one in given.posonlyargs + given.args + given.kwonlyargs)


def decorators(node):
    return [getattr(one, 'id', getattr(one, 'attr', '')) for one in node.decorator_list]


def bases(sources, module, node):
    """The class and its bases in the package, the nearest first."""
    yield node, module
    for base in node.bases:
        name = base.value.id if isinstance(base, ast.Subscript) and isinstance(base.value, ast.Name) else getattr(base, 'id', '')
        if name in ('', 'Generic', 'Exception', 'str', 'dict', 'list', 'object'):
            continue
        try:
            found, home = sources.find(module, name)
        except SystemExit:
            continue
        if isinstance(found, ast.ClassDef):
            for pair in bases(sources, home, found):
                yield pair


def members(sources, module, node):
    """Public methods and properties with a docstring, those of bases too."""
    seen = set()
    for cls, home in bases(sources, module, node):
        for one in cls.body:
            if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) or one.name.startswith('_'):
                continue
            if one.name in seen or one.name in INTERNAL:
                continue
            kinds = decorators(one)
            if 'overload' in kinds or 'setter' in kinds or not ast.get_docstring(one):
                continue
            seen.add(one.name)
            if 'property' in kinds:
                result = '' if one.returns is None else ': ' + sources.text(home, one.returns)
                yield one.name + result, one
            else:
                yield signature(sources, home, one.name, one, 'staticmethod' not in kinds), one


def entry(sources, module, name):
    node, home = sources.find(module, name)
    lines = ['### `%s`' % name, '']
    if isinstance(node, ast.FunctionDef):
        lines += ['```python', signature(sources, home, name, node, False), '```', '', prose(node, names_of(node)), '']
        return lines
    if not isinstance(node, ast.ClassDef):
        # A value: its class says what it is.
        made, _ = sources.find(home, getattr(getattr(node.value, 'func', None), 'id', ''))
        return lines + [prose(made), '']
    start = next((one for cls, _ in bases(sources, home, node) for one in cls.body if getattr(one, 'name', '') == '__init__'), None)
    own = next((one for one in node.body if getattr(one, 'name', '') == '__init__'), None)
    if own is not None and not name.endswith('Error') and name not in DECORATED and name not in OF_METHODS:
        lines += ['```python', signature(sources, home, name, own, True).replace(' -> None', ''), '```', '']
    lines += [prose(node, names_of(node)), '']
    if start is not None and ast.get_docstring(start):
        lines += [prose(start), '']
    for text, member in members(sources, home, node):
        body = prose(member)
        if '\n' not in text and '```' not in body:
            lines += ['- `%s`: %s' % (text, ' '.join(body.split()))]
        else:
            lines += ['', '```python', text, '```', '', body, '']
    return lines + ['']


def page():
    sources = Sources()
    home = dict(homes(sources), **OF_METHODS)
    grouped = {name for _, names in GROUPS for name in names}
    lines = [HEAD]
    for title, names in GROUPS:
        names = names or sorted(name for name in home if name not in grouped)
        lines += ['## ' + title, '']
        for name in names:
            lines += entry(sources, home[name], name)
    text = '\n'.join(lines)
    return re.sub(r'\n{3,}', '\n\n', text).rstrip() + '\n'


if __name__ == '__main__':
    sys.stdout.write(page())
