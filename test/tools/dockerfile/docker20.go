// The parser of Docker 20.10.
package main

import (
	"fmt"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

var lex = shell.NewLex('\\')

func expand(word string) (string, error)        { return lex.ProcessWord(word, variables) }
func expandWords(word string) ([]string, error) { return lex.ProcessWords(word, variables) }

func filesOf(parsed interface{}) (meaning, error) {
	switch c := parsed.(type) {
	case *instructions.CopyCommand:
		return meaning{Image: c.From, Flags: flag(flag(nil, "chown", c.Chown), "chmod", c.Chmod), Words: c.SourcesAndDest}, nil
	case *instructions.AddCommand:
		return meaning{Flags: flag(flag(nil, "chown", c.Chown), "chmod", c.Chmod), Words: c.SourcesAndDest}, nil
	}
	return meaning{}, fmt.Errorf("an instruction of another kind: %T", parsed)
}
