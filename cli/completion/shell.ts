// Completion for bash and zsh: the words of the tree as `case` statements that both read, and a function for each.
import { shellQuoted } from '#shared/shell-word.ts';
import type { CompletedCommand, Value } from './words.ts';

/** `@pools` stands for names; nothing for paths. */
const valueText = (value: Value): string =>
  value === undefined ? '' : 'names' in value ? `@${value.names}` : value.words.join(' ');

function caseOf(name: string, subject: string, rows: readonly (readonly [key: string, text: string])[]): string {
  const lines = rows.map(([key, text]) => `    ${shellQuoted(key)}) echo ${shellQuoted(text)} ;;`);
  return `${name}() {\n  case "${subject}" in\n${lines.join('\n')}\n    *) return 1 ;;\n  esac\n}\n`;
}

/** Functions of words by a command's path, and by path and option. */
function tables(commands: readonly CompletedCommand[]): string {
  const groups = commands.filter((one) => one.commands.length > 0);
  return [
    caseOf(
      '_longshore_commands',
      '$1',
      groups.map((one) => [one.path, one.commands.map(({ name }) => name).join(' ')]),
    ),
    caseOf(
      '_longshore_options',
      '$1',
      commands.map((one) => [one.path, one.options.flatMap(({ flags }) => flags).join(' ')]),
    ),
    caseOf(
      '_longshore_value',
      '$1 $2',
      commands.flatMap((one) =>
        one.options
          .filter(({ takesValue }) => takesValue)
          .flatMap(({ flags, value }) => flags.map((flag) => [`${one.path} ${flag}`, valueText(value)] as const)),
      ),
    ),
    caseOf(
      '_longshore_argument',
      '$1',
      commands.flatMap((one) => (one.argument === undefined ? [] : [[one.path, valueText(one.argument)] as const])),
    ),
  ].join('\n');
}

/** Finds the words for the place of the cursor; `$path` is the command so far, `$value` a value's words. */
const PLACE = `# Sets reply to the words for what comes behind the words given; returns 1 for a path.
_longshore_words() {
  local word found names value= path= skip= current="$1"
  shift
  for word in "$@"; do
    if [ -n "$skip" ]; then skip=; continue; fi
    case "$word" in
      -*) if _longshore_value "$path" "$word" > /dev/null; then skip="$word"; fi ;;
      *)
        names=" $(_longshore_commands "$path") "
        case "$names" in *" $word "*) path="\${path:+$path }$word" ;; esac ;;
    esac
  done
  if [ -n "$skip" ]; then value="$(_longshore_value "$path" "$skip")"
  else
    case "$current" in
      -*) value="$(_longshore_options "$path")" ;;
      *) value="$(_longshore_commands "$path")" || value="$(_longshore_argument "$path")" || value= ;;
    esac
  fi
  case "$value" in
    '') return 1 ;;
    @*) reply="$(longshore complete-names "\${value#@}" 2> /dev/null)" ;;
    *) reply="$value" ;;
  esac
}
`;

export const bashScript = (
  commands: readonly CompletedCommand[],
): string => `# Completion of longshore for bash: source <(longshore completion bash)
${tables(commands)}
${PLACE}
_longshore() {
  local reply= current="\${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  _longshore_words "$current" "\${COMP_WORDS[@]:1:COMP_CWORD-1}" || return 0
  mapfile -t COMPREPLY < <(compgen -W "$reply" -- "$current")
}
complete -o default -F _longshore longshore
`;

export const zshScript = (commands: readonly CompletedCommand[]): string => `#compdef longshore
# Completion of longshore for zsh: longshore completion zsh > "\${fpath[1]}/_longshore"
${tables(commands)}
${PLACE}
_longshore() {
  emulate -L sh
  local reply= current="$PREFIX"
  if _longshore_words "$current" $(_longshore_before); then compadd -- $(echo "$reply"); else _files; fi
}
# The words between the program's name and the cursor.
_longshore_before() {
  emulate -L zsh
  print -r -- \${words[2,CURRENT-1]}
}
if [ "\${funcstack[1]:-}" = _longshore ]; then _longshore "$@"; elif whence compdef > /dev/null; then compdef _longshore longshore; fi
`;
