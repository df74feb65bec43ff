package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// comments are what the source of package apitype says of its types and fields.
type comments map[string]string

// readComments reads them: "Job" is the comment of the type, "Job.ID" that of a field.
func readComments(root string) (comments, error) {
	files, err := filepath.Glob(filepath.Join(root, "internal/model/apitype/*.go"))
	if err != nil {
		return nil, err
	}
	out := comments{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				out.take(g)
			}
		}
	}
	return out, nil
}

// take adds the comments of a declaration.
func (c comments) take(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		c[t.Name.Name] = textOf(g.Doc)
		s, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			text := strings.TrimSpace(textOf(f.Doc) + " " + textOf(f.Comment))
			for _, name := range f.Names {
				c[t.Name.Name+"."+name.Name] = text
			}
		}
	}
}

func (c comments) typed(name string) string         { return c[name] }
func (c comments) member(owner, name string) string { return c[owner+"."+name] }

// textOf returns a comment as one line.
func textOf(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }
