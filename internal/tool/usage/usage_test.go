package usage

import (
	"bytes"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

func flags() *flag.FlagSet {
	f := flag.NewFlagSet("program", flag.ContinueOnError)
	f.Bool("demo", false, "show something")
	f.Int("rate", 0, "a `NUMBER` a second")
	f.String("on", "here", "`ADDRESS` to use")
	return f
}

func TestAMistakeNamesTheNearestFlagAndPrintsNothing(t *testing.T) {
	for arg, want := range map[string]string{
		"--demos": `unknown flag "--demos"; did you mean --demo?`, "-rat": `unknown flag "--rat"; did you mean --rate?`,
		"--colour=x": `unknown flag "--colour"`,
		"--rate=x":   `invalid value "x" for flag -rate: parse error`, "--on": "flag needs an argument: -on",
		"---": "bad flag syntax: ---",
	} {
		f := flags()
		var out bytes.Buffer
		f.SetOutput(&out)
		require.EqualError(t, Parse(f, []string{arg}), want)
		require.Empty(t, out.String())
	}
	require.ErrorIs(t, Parse(flags(), []string{"--help"}), flag.ErrHelp)
	f := flags()
	require.NoError(t, Parse(f, []string{"--rate", "3", "rest"}))
	require.Equal(t, []string{"rest"}, f.Args())
}

func TestHelpShowsEachFlagWithItsDefault(t *testing.T) {
	var out bytes.Buffer
	Help(flags(), &out)
	require.Equal(t, "  --demo\n      show something\n  --on ADDRESS\n      ADDRESS to use (default here)\n  --rate "+
		"NUMBER\n      a NUMBER a second\n", out.String())
}
