"""Makes the database of elements. The Dockerfile runs it; the app does not need it."""

import csv
import sqlite3
import sys

source, target = sys.argv[1:]
with sqlite3.connect(target) as database, open(source, encoding='utf-8', newline='') as file:
    database.execute('create table elements (number integer, symbol text primary key, name text, year integer)')
    database.executemany('insert into elements values (?, ?, ?, ?)', csv.reader(file))
    count = database.execute('select count(*) from elements').fetchone()[0]
print(count, 'elements')
