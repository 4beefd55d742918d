"""A call for each row of a CSV file, and a table of the results. The file runs as it is; nothing is deployed.

`map` puts all rows in one request, containers start as rows wait, and results come in the order of the rows.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from longshore import QueueDepthAutoscaler, function

RATES = {'DE': 0.19, 'FR': 0.20, 'GB': 0.20, 'US': 0.0}


@function(name='batch-table', cpu='250m', autoscaler=QueueDepthAutoscaler(max_containers=4, tasks_per_container=8))
def price(order: dict[str, str]) -> dict[str, Any]:
    """The work for one row: here a sum, elsewhere minutes of a model."""
    net = int(order['quantity']) * float(order['price'])
    tax = net * RATES.get(order['country'], 0.0)
    return {'order': order['order'], 'net': round(net, 2), 'tax': round(tax, 2), 'total': round(net + tax, 2)}


def main(source: Path, target: Path) -> None:
    with source.open(newline='') as file:
        orders = list(csv.DictReader(file))
    columns = ['order', 'net', 'tax', 'total']
    rows = [[one['order'], *('%.2f' % one[name] for name in columns[1:])] for one in price.map(orders)]
    with target.open('w', newline='') as file:
        csv.writer(file).writerows([columns, *rows])
    for row in [columns, *rows]:
        print('%-6s %10s %10s %10s' % tuple(row))


if __name__ == '__main__':
    here = Path(__file__).parent
    paths = [Path(path) for path in sys.argv[1:]] or [here / 'orders.csv', here / 'results.csv']
    main(*paths)
