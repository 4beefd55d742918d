// The parser of Docker 29.
package main

import (
	"fmt"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

var lex = shell.NewLex('\\')

func expand(word string) (string, error) {
	text, _, err := lex.ProcessWord(word, shell.EnvsFromSlice(variables))
	return text, err
}

func expandWords(word string) ([]string, error) {
	return lex.ProcessWords(word, shell.EnvsFromSlice(variables))
}

func files(s instructions.SourcesAndDest) []string {
	words := append([]string{}, s.SourcePaths...)
	for _, content := range s.SourceContents {
		words = append(words, "here-document "+content.Path)
	}
	return append(words, s.DestPath)
}

func filesOf(parsed interface{}) (meaning, error) {
	switch c := parsed.(type) {
	case *instructions.CopyCommand:
		flags := flag(flag(nil, "chown", c.Chown), "chmod", c.Chmod)
		if c.Link || c.Parents || len(c.ExcludePatterns) > 0 {
			flags = append(flags, "other")
		}
		return meaning{Image: c.From, Flags: flags, Words: files(c.SourcesAndDest)}, nil
	case *instructions.AddCommand:
		flags := flag(flag(nil, "chown", c.Chown), "chmod", c.Chmod)
		if c.Link || c.KeepGitDir != nil || c.Unpack != nil || c.Checksum != "" || len(c.ExcludePatterns) > 0 {
			flags = append(flags, "other")
		}
		return meaning{Flags: flags, Words: files(c.SourcesAndDest)}, nil
	}
	return meaning{}, fmt.Errorf("an instruction of another kind: %T", parsed)
}
