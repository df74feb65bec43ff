package seedfile_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

const sample = `
; what upstream's documentation shows
[initial-channels]
orders=Orders of the shop
audit.log=Audit

[initial-producers]
shop=The shop

[initial-consumers]
billing=https://billing.example/cb?a=b;c=d&e=1
mirror.eu=http://mirror.example/
worker=

[initial-channel-tokens]
orders=o%(x)s;to#ken=

[initial-producer-tokens]
shop=shop-token

[billing]
token=b-token
channel=orders

[mirror]
token=not-for-mirror.eu
channel=audit.log
type=pull

[mirror.eu]
channel=orders
type=

[worker]
token=w-token
channel=orders
type=pull
`

func parse(t *testing.T, text string) (seedfile.Seed, string) {
	t.Helper()
	seed, warnings, err := seedfile.Parse([]byte(text))
	require.NoError(t, err)
	all := make([]string, len(warnings))
	for i, w := range warnings {
		all[i] = string(w)
	}
	return seed, strings.Join(all, "\n")
}

func TestASeedFileIsReadAsItIsWritten(t *testing.T) {
	seed, warnings := parse(t, sample)
	require.Empty(t, warnings)
	require.Equal(t, seedfile.Seed{
		Channels: []seedfile.Resource{{ID: "orders", Name: "Orders of the shop", Token: "o%(x)s;to#ken="},
			{ID: "audit.log", Name: "Audit"}},
		Producers: []seedfile.Resource{{ID: "shop", Name: "The shop", Token: "shop-token"}},
		Consumers: []seedfile.Consumer{
			{ID: "billing", Channel: "orders", Token: "b-token", CallbackURL: "https://billing.example/cb?a=b;c=d&e=1"},
			{ID: "mirror.eu", Channel: "orders", CallbackURL: "http://mirror.example/"},
			{ID: "worker", Channel: "orders", Token: "w-token", Type: durable.Pull},
		},
	}, seed)
}

func TestAConsumerWithADotInheritsNothing(t *testing.T) {
	seed, _ := parse(t, sample)
	for _, c := range seed.Consumers {
		if c.ID == "mirror.eu" {
			require.Empty(t, c.Token, "[mirror] is another consumer")
			require.Equal(t, "orders", c.Channel)
		}
	}
	_, warnings := parse(t, "[initial-consumers]\na.b=http://h/\n[a]\nchannel=c\n")
	require.Contains(t, warnings, "a.b")
}

func TestAnEmptyFileNamesNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "; only words\n# and more\n", "[initial-channels]\n",
		"[broker]\nmax-retry=5\n", "\ufeff[initial-channels]\n"} {
		seed, warnings := parse(t, text)
		require.Empty(t, warnings)
		require.Equal(t, seedfile.Seed{}, seed)
	}
}

func TestWhatCannotBeCreatedIsLeftOutWithAWarning(t *testing.T) {
	for _, tc := range []struct{ name, text, warning string }{
		{"another type", "[initial-consumers]\nk=http://h/\n[k]\nchannel=c\ntype=email\n", "email"},
		{"no section", "[initial-consumers]\nk=http://h/\n", "channel"},
		{"no channel", "[initial-consumers]\nk=http://h/\n[k]\ntoken=t\n", "channel"},
		{"push without a callback", "[initial-consumers]\nk=\n[k]\nchannel=c\n", "callback"},
		{"a consumer's bad token", "[initial-consumers]\nk=http://h/\n[k]\nchannel=c\ntoken=se cret\n", "token"},
		{"a channel's bad token", "[initial-channels]\nc=C\n[initial-channel-tokens]\nc=s\u00e9cret\n", "token"},
		{"a bad ID", "[initial-producers]\na/b=x\n", "a/b"},
		{"an ID too long", "[initial-producers]\n" + strings.Repeat("a", 256) + "=x\n", "ID"},
		{"a token of nobody", "[initial-producer-tokens]\nghost=secret\n", "ghost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seed, warnings := parse(t, tc.text)
			require.Contains(t, warnings, tc.warning)
			require.NotContains(t, warnings, "cret", "no token is shown")
			require.Equal(t, seedfile.Seed{}, seed)
		})
	}
}

func TestTextThatIsNoINIIsAnError(t *testing.T) {
	for _, text := range []string{"[initial-channels", "[initial-channels]\njust a line\n", "{\"json\":true}"} {
		_, _, err := seedfile.Parse([]byte(text))
		require.Error(t, err, text)
	}
}

func TestAnErrorNamesTheLineAndShowsNoToken(t *testing.T) {
	const head = "[initial-channels]\nc=C\n\n[initial-channel-tokens]\n"
	for text, line := range map[string]string{
		head + "c secret-token\n":            "line 5",
		head + "=secret-token\nd=x\n":        "line 5",
		head + "d=x\n`c=secret-token\ne=x\n": "line 6",
		head + "c=\"\"\"secret-token\ne=x\n": "line 5",
		head + "[secret-token\n[k]\n":        "line 5",
		"secret-token":                       "line 1",
		head + "c=x\r\n\r\nsecret-token\r\n": "line 7",
	} {
		_, _, err := seedfile.Parse([]byte(text))
		require.ErrorContains(t, err, line+" ", text)
		require.NotContains(t, err.Error(), "secret", text)
	}
}

func TestAMemberThatMeansNothingIsNamed(t *testing.T) {
	seed, warnings := parse(t, "[initial-consumers]\nk=http://h/\n[k]\nchannel=c\ntokn=secret\nmaxRetries=3\n")
	require.Len(t, seed.Consumers, 1)
	require.Contains(t, warnings, `"tokn", which is ignored: there are token, channel, type; did you mean token?`)
	require.Contains(t, warnings, `"maxRetries"`)
	require.NotContains(t, warnings, "secret")
}

// The example of the page is a seed file, and the page names every section and member.
func TestThePageOfTheSeedFileIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/seed.md")
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(text), "\n```ini\n")
	require.True(t, ok)
	example, _, ok = strings.Cut(example, "```\n")
	require.True(t, ok)
	seed, warnings := parse(t, example)
	require.Empty(t, warnings)
	require.Equal(t, seedfile.Seed{
		Channels: []seedfile.Resource{{ID: "orders", Name: "Orders of the shop", Token: "orders-secret"},
			{ID: "audit", Name: "Audit"}},
		Producers: []seedfile.Resource{{ID: "shop", Name: "The shop", Token: "shop-secret"}},
		Consumers: []seedfile.Consumer{
			{ID: "billing", Channel: "orders", Token: "billing-secret",
				CallbackURL: "https://billing.example/hook?from=penstock;v=1"},
			{ID: "packing", Channel: "orders", Token: "packing-secret", Type: durable.Pull},
		},
	}, seed)
	for _, name := range []string{"initial-channels", "initial-producers", "initial-consumers", "initial-channel-tokens",
		"initial-producer-tokens", "initial-groups", "initial-channel-groups", "token", "channel", "type"} {
		require.Contains(t, string(text), "`"+name+"`")
	}
}

func TestAnErrorNamesEachLine(t *testing.T) {
	_, _, err := seedfile.Parse([]byte("[initial-channels]\na secret\nc=C\n[secret\n; fine\n\nsecret"))
	var syntax *seedfile.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.Equal(t, []int{2, 4, 7}, syntax.Lines)
	_, _, err = seedfile.Parse([]byte(strings.Repeat("secret\n", 1000)))
	require.ErrorAs(t, err, &syntax)
	require.Len(t, syntax.Lines, 20)
}

// writes counts the Puts that reach a real store.
type writes struct {
	*durable.Store
	n int
}

func (w *writes) PutProducer(ctx context.Context, p durable.Put) (durable.Producer, bool, error) {
	w.n++
	return w.Store.PutProducer(ctx, p)
}

func (w *writes) PutGroup(ctx context.Context, p durable.Put) (durable.Group, bool, error) {
	w.n++
	return w.Store.PutGroup(ctx, p)
}

func (w *writes) PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error) {
	w.n++
	return w.Store.PutChannel(ctx, p)
}

func (w *writes) PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error) {
	w.n++
	return w.Store.PutConsumer(ctx, p)
}

func open(t *testing.T) *writes {
	t.Helper()
	dir := t.TempDir()
	tables.SQLite(t, dir)
	store, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &writes{Store: store}
}

func TestApplyCreatesExactlyWhatTheFileNames(t *testing.T) {
	store := open(t)
	seed, _ := parse(t, sample)
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	got, err := store.Changes(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, got.Producers, 1)
	require.Len(t, got.Channels, 2)
	require.Len(t, got.Consumers, 3)
	for _, c := range got.Channels {
		switch c.ID {
		case "orders":
			require.Equal(t, "o%(x)s;to#ken=", c.Token)
			require.Equal(t, "Orders of the shop", c.Name)
			require.Equal(t, 3, c.Audience)
		case "audit.log":
			require.GreaterOrEqual(t, len(c.Token), 20, "a missing token is made up")
		}
	}
	for _, k := range got.Consumers {
		require.Equal(t, k.ID, k.Name)
		require.NotEmpty(t, k.Token)
	}
}

func TestARestartWithTheSameFileWritesNothing(t *testing.T) {
	store := open(t)
	seed, _ := parse(t, sample)
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	before, err := store.Changes(t.Context(), 0)
	require.NoError(t, err)
	store.n = 0
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	require.Zero(t, store.n)
	after, err := store.Changes(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, before, after, "made-up tokens included")
}

func TestAnEditedFileUpdatesOnlyWhatItChanges(t *testing.T) {
	store := open(t)
	seed, _ := parse(t, sample)
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	store.n = 0
	seed, _ = parse(t, strings.Replace(sample, "token=b-token", "token=b-token-2", 1))
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	require.Equal(t, 1, store.n)
	got, err := store.Changes(t.Context(), 0)
	require.NoError(t, err)
	for _, k := range got.Consumers {
		if k.ID == "billing" {
			require.Equal(t, "b-token-2", k.Token)
			require.Equal(t, "https://billing.example/cb?a=b;c=d&e=1", k.CallbackURL)
		}
	}
}

func TestAnUnknownChannelIsAnErrorThatNamesIt(t *testing.T) {
	seed, _ := parse(t, "[initial-consumers]\nk=http://h/\n[k]\nchannel=nowhere\ntoken=secret\n")
	err := seedfile.Apply(t.Context(), open(t), seed)
	require.ErrorIs(t, err, durable.ErrNotFound)
	require.ErrorContains(t, err, "nowhere")
	require.NotContains(t, err.Error(), "secret")
}

type broken struct{ *durable.Store }

func (broken) Changes(context.Context, int64) (durable.Changes, error) {
	return durable.Changes{}, errors.New("store is away")
}

func TestAStoreThatCannotBeReadIsNotWrittenTo(t *testing.T) {
	seed, _ := parse(t, sample)
	require.ErrorContains(t, seedfile.Apply(t.Context(), broken{}, seed), "store is away")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("[a]\n`k`=\"\"\"x\n\"\"\"\n"))
	f.Add([]byte("[initial-consumers]\nDEFAULT=x\n[DEFAULT]\nchannel=%(channel)s"))
	f.Fuzz(func(t *testing.T, text []byte) {
		seed, _, err := seedfile.Parse(text)
		if err != nil {
			require.Equal(t, seedfile.Seed{}, seed)
			return
		}
		for _, r := range append(seed.Channels, seed.Producers...) {
			require.NotEmpty(t, r.ID)
			require.LessOrEqual(t, len(r.ID), 255)
		}
		for _, c := range seed.Consumers {
			require.NotEmpty(t, c.Channel)
			require.True(t, c.Type == durable.Pull || c.CallbackURL != "")
		}
	})
}

func TestApplyCreatesAnewWhatWasDeleted(t *testing.T) {
	store, ctx := open(t), t.Context()
	seed, _ := parse(t, sample)
	require.NoError(t, seedfile.Apply(ctx, store, seed))
	before, err := store.Changes(ctx, 0)
	require.NoError(t, err)
	names := map[uint32]string{}
	for _, c := range before.Channels {
		names[c.No] = c.ID
	}
	for _, k := range before.Consumers {
		_, err := store.DeleteConsumer(ctx, names[k.ChannelNo], durable.Put{ID: k.ID})
		require.NoError(t, err)
	}
	for _, id := range names {
		_, err := store.DeleteChannel(ctx, durable.Put{ID: id})
		require.NoError(t, err)
	}
	_, err = store.DeleteProducer(ctx, durable.Put{ID: before.Producers[0].ID})
	require.NoError(t, err)
	for range 2 { // the second time changes nothing
		require.NoError(t, seedfile.Apply(ctx, store, seed))
		after, err := store.Changes(ctx, 0)
		require.NoError(t, err)
		require.Len(t, after.Producers, 2)
		require.Len(t, after.Channels, 4)
		require.Len(t, after.Consumers, 6)
	}
}

// Groups are made before the channels that carry them, and a restart with the same file changes nothing.
func TestGroupsOfTheFile(t *testing.T) {
	const text = "shop=x\n[initial-groups]\nshop=The shop\n~own=x\n[initial-channels]\norders=Orders\nplain=Plain\n" +
		"[initial-channel-groups]\norders=shop\nnone=shop\nplain=not valid\n"
	seed, warnings := parse(t, text)
	require.Equal(t, []seedfile.Resource{{ID: "shop", Name: "The shop"}}, seed.Groups)
	for _, want := range []string{`"~own" begins with ~`, `[initial-channel-groups] names "none"`,
		`"not valid" is no valid ID of a group; channel plain carries none`} {
		require.Contains(t, warnings, want)
	}
	store := open(t)
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	got, err := store.Changes(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, got.Groups, 1)
	require.Equal(t, "The shop", got.Groups[0].Name)
	for _, c := range got.Channels {
		require.Equal(t, map[string]string{"orders": "shop", "plain": ""}[c.ID], c.Group)
	}
	store.n = 0
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	require.Zero(t, store.n)
	seed.Groups[0].Name = "Shops"
	require.NoError(t, seedfile.Apply(t.Context(), store, seed))
	require.Equal(t, 1, store.n)
	seed.Channels[0].Group = "nowhere"
	require.ErrorContains(t, seedfile.Apply(t.Context(), store, seed), "channel orders")
}
