package durable

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestTheReasonOfARejectionHoldsNothingOfTheMessage(t *testing.T) {
	quoting := &mysql.MySQLError{Number: 1366, SQLState: [5]byte([]byte("HY000")),
		Message: "Incorrect string value: 's3cret' for column 'payload'"}
	require.EqualError(t, withoutValues(quoting), "error 1366 (HY000) of the MySQL server")
	naming := &mysql.MySQLError{Number: 4025, Message: "CONSTRAINT `messages_priority` failed"}
	require.Equal(t, error(naming), withoutValues(naming))
	require.Equal(t, mysql.ErrPktTooLarge, withoutValues(mysql.ErrPktTooLarge))
	other := errors.New("x")
	require.Equal(t, other, withoutValues(other))
}
