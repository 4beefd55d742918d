"""Many calls at once: `map` puts them in one request, a Map keeps what they found, an Output is the report."""

from longshore import Map, Output, function

words = Map(name='batch-words')


@function(name='batch-count', app='batch')
def count(title: str, text: str) -> int:
    words[title] = number = len(text.split())
    return number


@function(name='batch-report', app='batch')
def report() -> str:
    with open('report.txt', 'w') as file:
        for title, number in words.items():
            file.write('%s: %d words\n' % (title, number))
    return Output(path='report.txt').save().public_url(expires=600)


if __name__ == '__main__':
    texts = [('one', 'a ship comes in'), ('two', 'and is unloaded'), ('three', 'by night')]
    print(list(count.map(texts)))  # [4, 3, 2]
    print(report.remote())  # an address: curl it
