// Writes docs/python-reference.md from the source of python/longshore. A Python test fails when it is out of date.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';

writeFileSync('docs/python-reference.md', execFileSync('python3', ['scripts/python_reference.py']));
