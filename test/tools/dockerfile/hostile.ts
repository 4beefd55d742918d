// Dockerfiles made up at random: instructions as people write them, with pieces that parsers may read differently.

/** Numbers from 0 up to 1, the same for the same seed. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const INSTRUCTIONS = [
  'FROM image:1',
  'FROM --platform=linux/amd64 image:1 AS build',
  'FROM build AS second',
  'FROM scratch',
  'ARG A=1 B="x y" C',
  'ENV A=b C="d $U e" D=\'$U\' E=${S:-f g}',
  'ENV OLD one  two "three" $S',
  'LABEL "com.example.a"="b c" d=e\\ f g=$Q',
  'LABEL old form of it',
  'COPY --chown=0:g --from=build a b/* /c/',
  'COPY --from=0 ["a b", "$S", "/c"]',
  'COPY --from=other:2 /a${Q:+x}$S /b',
  'ADD --chown=$S a.tar ./b /c/',
  'ADD ["a b", "/c"]',
  'RUN echo "a" && [ "$A" ] || true',
  'RUN ["a", "b\\"c", "$U"]',
  'RUN a \\\n  # comment \\\n\n  && b \\\\',
  'CMD echo ${U:-"x"} $(y) `z`',
  'ENTRYPOINT ["/bin/sh", "-c", "exec \\"$@\\""]',
  'SHELL ["/bin/bash", "-ec"]',
  'HEALTHCHECK --interval=5s --retries=2 CMD curl "$U" || exit 1',
  'HEALTHCHECK NONE',
  'EXPOSE 80 $S 90-95/udp',
  'USER $S:0',
  'WORKDIR /a b/$S',
  'VOLUME /a $S',
  'VOLUME ["/a b", "${S}"]',
  'STOPSIGNAL SIGINT',
  'MAINTAINER Jörg <j@x>',
  'ONBUILD RUN true',
  '# a comment',
  '# escape=`',
  '',
];

const PIECES = [
  ...'\u0085\u00A0\u2028\u3000\uFEFF\v\f\r\t\0àÅĠ "\'\\`#$<[]{}:=-,/@!\n'.split(''),
  '\\\n',
  '\\\\',
  '\\ ',
  ' \\\n# x\n',
  '\r\n',
  '--from=68c',
  ' --from=68c ',
  '\u0085--from=68c',
  'à--from=68c',
  '\u00A0--chown=x',
  ' -- ',
  '--FROM=x ',
  '--link ',
  '--chmod=1 ',
  '$U',
  '${U}',
  '$S',
  '${S:-',
  '${S:+"x}y"}',
  '${Q}',
  '$1',
  '${A/b/c}',
  '<<EOF',
  '<< EOF',
  '<<-"E"',
  'http://x/y',
  'ht"tp://"x',
  'git@x:y',
  '["a","b"]',
  '["a"] b',
  '[]',
  '\\u0022',
  '"\\"',
  ' AS x',
  ' as 68c',
  'io.longshore.gpus=x ',
  'IO.Longshore.build',
  '\nFROM 68c\n',
  '\nCOPY --from=68c a b\n',
  '\nADD http://x /y\n',
  '\uD800',
  '日本',
];

/** A file; the same for the same numbers. */
export function dockerfileOf(random: () => number): string {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const count = 1 + Math.floor(random() * 6);
  const lines = [...(random() < 0.9 ? ['FROM image:1 AS build'] : [])];
  for (let at = 0; at < count; at += 1) lines.push(pick(INSTRUCTIONS));
  let text = lines.join(random() < 0.95 ? '\n' : '\r\n');
  const changes = Math.floor(random() * 5);
  for (let at = 0; at < changes; at += 1) {
    const place = Math.floor(random() * (text.length + 1));
    const kind = random();
    const odd = String.fromCharCode(
      random() < 0.7 ? 0x80 + Math.floor(random() * 0x80) : Math.floor(random() * 0xffff),
    );
    if (kind < 0.6) text = text.slice(0, place) + pick(PIECES) + text.slice(place);
    else if (kind < 0.75) text = text.slice(0, place) + odd + text.slice(place);
    else if (kind < 0.85) text = text.slice(0, place) + text.slice(place + 1 + Math.floor(random() * 3));
    else if (kind < 0.95)
      text = text.slice(0, place) + text.slice(place, place + 1).toUpperCase() + text.slice(place + 1);
    else text += text.slice(place, place + 20);
  }
  return text;
}
