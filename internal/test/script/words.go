package script

import (
	"regexp"
	"slices"
	"strings"
)

// before are words of a shell, and programs, that stand before a command.
var before = []string{"{", "}", "!", "if", "then", "else", "elif", "while", "until", "do", "done", "fi", "time",
	"sudo", "exec", "command", "env"}

// Words returns the simple commands of a script, each as its words without quotes. Settings and words of the shell
// before a command, redirections and comments are left out. What is inside of double quotes is one word.
func Words(text string) (commands [][]string) {
	s := &splitter{text: strings.ReplaceAll(text, "\\\n", " ")}
	for s.at < len(s.text) {
		s.step()
	}
	s.endCommand()
	return s.commands
}

type splitter struct {
	text     string
	at       int
	commands [][]string
	words    []string
	word     strings.Builder
	begun    bool   // a word, which may be empty
	drop     bool   // the next word is the file of a redirection
	here     string // the last line of a text that comes with the next line
}

func (s *splitter) step() {
	c := s.text[s.at]
	s.at++
	switch {
	case c == '\'' || c == '"':
		s.quoted(c)
	case c == '\\' && s.at < len(s.text):
		s.add(s.text[s.at : s.at+1])
		s.at++
	case c == '#' && !s.begun:
		s.at += len(line(s.text[s.at:]))
	case c == ' ' || c == '\t':
		s.endWord()
	case c == '<' || c == '>':
		s.redirection()
	case strings.IndexByte("\n;|&()", c) >= 0:
		s.endCommand()
		if c == '\n' && s.here != "" {
			s.skipHere()
		}
	default:
		s.add(string(c))
	}
}

func line(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

func (s *splitter) add(text string) {
	s.word.WriteString(text)
	s.begun = true
}

// quoted adds what stands until the next quote. In double quotes a backslash keeps the next byte.
func (s *splitter) quoted(quote byte) {
	s.begun = true
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == quote:
			s.at++
			return
		case c == '\\' && quote == '"' && s.at+1 < len(s.text):
			s.at++
			s.add(s.text[s.at : s.at+1])
		default:
			s.add(string(c))
		}
	}
}

// redirection leaves its file out, and remembers where a text in the script ends.
func (s *splitter) redirection() {
	if word := s.word.String(); strings.Trim(word, "0123456789") == "" { // a descriptor
		s.word.Reset()
		s.begun = false
	}
	s.endWord()
	begin := s.at - 1
	for s.at < len(s.text) && strings.IndexByte("<>&-", s.text[s.at]) >= 0 {
		s.at++
	}
	if s.at < len(s.text) && s.text[s.at] == '(' {
		return // the command of a process substitution
	}
	if sign := s.text[begin:s.at]; sign == "<<" || sign == "<<-" {
		s.here = strings.Trim(strings.Fields(line(s.text[s.at:]) + " ;")[0], `'"`)
	}
	s.drop = true
}

func (s *splitter) skipHere() {
	for s.at < len(s.text) {
		one := line(s.text[s.at:])
		s.at = min(len(s.text), s.at+len(one)+1)
		if strings.TrimSpace(one) == s.here {
			break
		}
	}
	s.here = ""
}

func (s *splitter) endWord() {
	if s.begun && !s.drop {
		s.words = append(s.words, s.word.String())
	}
	if s.begun {
		s.drop = false
	}
	s.word.Reset()
	s.begun = false
}

func (s *splitter) endCommand() {
	s.endWord()
	s.drop = false
	for len(s.words) > 0 && (slices.Contains(before, s.words[0]) || setting.MatchString(s.words[0])) {
		s.words = s.words[1:]
	}
	if len(s.words) > 0 {
		s.commands = append(s.commands, s.words)
	}
	s.words = nil
}

// setting is NAME=VALUE as a word.
var setting = regexp.MustCompile(`^\w+=`)
