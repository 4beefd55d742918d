// Reads Dockerfiles with Docker's own parser, a JSON text per line, and answers with what each instruction means, a line
// of JSON each. Built by fuzz.ts, once for each version of the parser; adapter.go is that of the version.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

type meaning struct {
	Name  string     `json:"name"`
	Image string     `json:"image,omitempty"`
	Stage string     `json:"stage,omitempty"`
	Flags []string   `json:"flags,omitempty"`
	Words []string   `json:"words,omitempty"`
	Pairs [][]string `json:"pairs,omitempty"`
	Shell bool       `json:"shell,omitempty"`
}

type answer struct {
	Error        string    `json:"error,omitempty"`
	Instructions []meaning `json:"instructions"`
}

var variables []string

func read(text string) (result answer) {
	result.Instructions = []meaning{}
	file, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return answer{Error: err.Error()}
	}
	if string(file.EscapeToken) != "\\" {
		return answer{Error: "another escape token"}
	}
	for _, node := range file.AST.Children {
		parsed, err := instructions.ParseInstruction(node)
		if err != nil {
			return answer{Error: err.Error()}
		}
		if command, ok := parsed.(instructions.SupportsSingleWordExpansion); ok {
			if err := command.Expand(expand); err != nil {
				return answer{Error: err.Error()}
			}
		}
		one, err := meaningOf(parsed)
		if err != nil {
			return answer{Error: err.Error()}
		}
		one.Name = strings.ToUpper(node.Value)
		result.Instructions = append(result.Instructions, one)
	}
	return result
}

func flag(flags []string, name string, value string) []string {
	if value == "" {
		return flags
	}
	return append(flags, name+"="+value)
}

func pairsOf(list instructions.KeyValuePairs) [][]string {
	pairs := [][]string{}
	for _, pair := range list {
		pairs = append(pairs, []string{pair.Key, pair.Value})
	}
	return pairs
}

func meaningOf(parsed interface{}) (meaning, error) {
	switch c := parsed.(type) {
	case *instructions.Stage:
		return meaning{Image: c.BaseName, Stage: c.Name, Flags: flag(nil, "platform", c.Platform)}, nil
	case *instructions.LabelCommand:
		return meaning{Pairs: pairsOf(c.Labels)}, nil
	case *instructions.EnvCommand:
		return meaning{Pairs: pairsOf(c.Env)}, nil
	case *instructions.ArgCommand:
		pairs := [][]string{}
		for _, arg := range c.Args {
			pair := []string{arg.Key}
			if arg.Value != nil {
				pair = append(pair, *arg.Value)
			}
			pairs = append(pairs, pair)
		}
		return meaning{Pairs: pairs}, nil
	case *instructions.RunCommand:
		return meaning{Words: c.CmdLine, Shell: c.PrependShell, Flags: c.FlagsUsed}, nil
	case *instructions.CmdCommand:
		return meaning{Words: c.CmdLine, Shell: c.PrependShell}, nil
	case *instructions.EntrypointCommand:
		return meaning{Words: c.CmdLine, Shell: c.PrependShell}, nil
	case *instructions.HealthCheckCommand:
		return meaning{Words: c.Health.Test}, nil
	case *instructions.ShellCommand:
		return meaning{Words: c.Shell}, nil
	case *instructions.ExposeCommand:
		words := []string{}
		for _, port := range c.Ports {
			some, err := expandWords(port)
			if err != nil {
				return meaning{}, err
			}
			words = append(words, some...)
		}
		sort.Strings(words)
		return meaning{Words: words}, nil
	case *instructions.VolumeCommand:
		return meaning{Words: c.Volumes}, nil
	case *instructions.UserCommand:
		return meaning{Words: []string{c.User}}, nil
	case *instructions.WorkdirCommand:
		return meaning{Words: []string{c.Path}}, nil
	case *instructions.StopSignalCommand:
		return meaning{Words: []string{c.Signal}}, nil
	case *instructions.MaintainerCommand:
		return meaning{Words: []string{c.Maintainer}}, nil
	case *instructions.OnbuildCommand:
		return meaning{Words: []string{c.Expression}}, nil
	}
	return filesOf(parsed)
}

func main() {
	if err := json.Unmarshal([]byte(os.Args[1]), &variables); err != nil {
		panic(err)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var text string
		if err := json.Unmarshal(line, &text); err != nil {
			panic(err)
		}
		written, _ := json.Marshal(read(text))
		out.Write(append(written, '\n'))
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}
