package catalogue

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// restore sets the resources back to an earlier state.
func (s *source) restore(to durable.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to
}

// backup returns a copy of the resources.
func (s *source) backup() durable.Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.state
	b.Producers, b.Channels, b.Consumers = slices.Clone(b.Producers), slices.Clone(b.Channels), slices.Clone(b.Consumers)
	return b
}

// world returns a catalogue with a backup, and with changes after it.
func world(t *testing.T) (s *source, backup durable.Changes, c *Catalogue, ended map[uint32]bool, restored *int) {
	t.Helper()
	s = &source{}
	s.producer("p", "old")
	s.channel(1, "c", "ct")
	s.consumer(1, "k", "kt")
	backup = s.backup()
	s.change(func(st *durable.Changes, v int64) { st.Producers[0].Token, st.Producers[0].Version = "new", v })
	s.producer("later", "lt")
	s.channel(2, "d", "dt")
	s.consumer(1, "l", "lt")
	s.consumer(2, "m", "mt")
	c = open(t, s)
	ended, restored = map[uint32]bool{}, new(int)
	c.Watch(func(k *durable.Consumer) { ended[k.No] = k.Deleted() })
	c.OnRestored(func() { *restored++ })
	require.NoError(t, c.audit(t.Context()))
	require.Zero(t, *restored)
	return s, backup, c, ended, restored
}

// requireBackup requires the copy to have the resources of the backup and no others.
func requireBackup(t *testing.T, c *Catalogue, ended map[uint32]bool) {
	t.Helper()
	require.Equal(t, "old", c.Producer("p").Token)
	require.Nil(t, c.Producer("later"))
	require.Nil(t, c.Channel("d"))
	require.Nil(t, c.ChannelByNo(2))
	require.Len(t, c.Channel("c").Consumers, 1)
	require.Nil(t, c.Consumer("c", "l"))
	require.True(t, c.ConsumerByNo(1001).Deleted(), "claims of it may be under way")
	require.Empty(t, c.ConsumerByNo(1001).Token)
	require.Equal(t, map[uint32]bool{1000: false, 1001: true, 2000: true}, ended)
	require.Empty(t, c.DeletedChannels(), "nothing is purged for it")
	require.ElementsMatch(t, []uint32{1000}, c.ConsumerNos())
}

func TestACopyFollowsACatalogueThatGoesBack(t *testing.T) {
	s, backup, c, ended, restored := world(t)
	s.restore(backup)
	poll := func() {
		t.Helper()
		require.NoError(t, c.Refresh(t.Context()))
		require.NoError(t, c.audit(t.Context()))
	}
	poll()
	require.NoError(t, c.Refresh(t.Context()), "no poll")
	require.Zero(t, *restored, "one read may be stale")
	poll()
	requireBackup(t, c, ended)
	require.Equal(t, 1, *restored)
	require.Greater(t, s.state.Version, backup.Version, "a version of its own")
	require.Equal(t, durable.Numbers{Producer: 5, Channel: 2, Consumer: 2000}, s.used)
	for range 3 {
		require.NoError(t, c.Refresh(t.Context()))
		require.NoError(t, c.audit(t.Context()))
	}
	require.Equal(t, 1, *restored, "once")
	requireBackup(t, c, ended)

	// A later consumer may get the number of a lost one, where no broker knew of it at the restoration.
	s.consumer(1, "n", "nt")
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, c.audit(t.Context()))
	require.Equal(t, 1, *restored)
	require.EqualValues(t, 1001, c.Consumer("c", "n").No)
	require.False(t, ended[1001])
	require.Equal(t, "nt", c.ConsumerByNo(1001).Token)
}

// A replica that lags answers one read, or several that move on.
func TestAStaleReadIsNoRestoration(t *testing.T) {
	s, backup, c, _, restored := world(t)
	now := s.backup()
	for _, reads := range [][]durable.Changes{{backup, now}, {now, backup, now}, {backup, now, backup, now}} {
		for _, read := range reads {
			s.restore(read)
			require.NoError(t, c.Refresh(t.Context()))
			require.NoError(t, c.audit(t.Context()))
			require.NotNil(t, c.Producer("later"))
		}
	}
	earlier := backup
	earlier.Version--
	for _, read := range []durable.Changes{backup, earlier} { // a second replica, further behind
		s.restore(read)
		require.NoError(t, c.Refresh(t.Context()))
		require.NoError(t, c.audit(t.Context()))
	}
	s.restore(now)
	require.NoError(t, c.audit(t.Context()), "the copy is loaded from a read that is not stale")
	require.Zero(t, *restored)
	require.Zero(t, s.used)
	require.Equal(t, now.Version, s.state.Version, "no touch")
}

// The version is raised in the end.
func TestATouchThatFailsIsRepeated(t *testing.T) {
	s, backup, c, _, restored := world(t)
	s.restore(backup)
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, c.audit(t.Context()))
	s.untouchable = errors.New("test: no")
	require.ErrorIs(t, c.audit(t.Context()), s.untouchable)
	require.ErrorIs(t, c.audit(t.Context()), s.untouchable)
	s.untouchable = nil
	require.NoError(t, c.audit(t.Context()))
	require.Equal(t, backup.Version+1, s.state.Version)
	require.Equal(t, 1, *restored)
}

// A change after the restoration gives the catalogue a version that is higher than that of the copy.
func TestACopyFollowsACatalogueOfAnotherHistory(t *testing.T) {
	s, backup, c, ended, restored := world(t)
	before := c.Version()
	s.restore(backup)
	s.change(func(st *durable.Changes, v int64) { st.Version = before + 1 })
	require.NoError(t, c.Refresh(t.Context()))
	require.NotNil(t, c.Producer("later"), "the versions alone do not tell")
	require.NoError(t, c.audit(t.Context()))
	requireBackup(t, c, ended)
	require.Equal(t, 1, *restored)
}

// A poll without a change reads no rows.
func TestACopyIsComparedOnceForEachVersion(t *testing.T) {
	s, _, c, _, _ := world(t)
	asked := s.asked.Load()
	for range 5 {
		require.NoError(t, c.audit(t.Context()))
	}
	require.Equal(t, asked, s.asked.Load())
	require.Equal(t, c.Version(), c.audited)
}
