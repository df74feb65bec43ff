package durable_test

import (
	"testing"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/storetest"
)

func TestTheClockOfMySQLNeverGoesBackWhenThatOfItsServerJumps(t *testing.T) {
	server := servers.StartMySQLClocked(t)
	storetest.RunClock(t, func(t *testing.T) storetest.Server {
		dsn := server.DSN()
		return storetest.Server{Store: openMySQL(t, dsn), Jump: server.Jump, Exec: person(t, "mysql", dsn)}
	})
}
