//go:build unix

package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// adminTimeout bounds a statement of this package itself.
const adminTimeout = 30 * time.Second

// createDatabase makes an empty database of a random name on the server of
// dsn. It returns the DSN that selects it and a function that drops it.
func createDatabase(dsn string) (string, func() error, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, fmt.Errorf("servers: read the DSN: %w", err)
	}
	// Only letters and digits: names cannot be parameters of a statement.
	name := "penstock_" + rand.Text()
	if err := execute(dsn, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("servers: create a database: %w", err)
	}
	cfg.DBName = name
	drop := func() error { return execute(dsn, "DROP DATABASE "+name) }
	return cfg.FormatDSN(), drop, nil
}

// createUser makes a user without a password, with all rights in the database of dsn, and returns
// the DSN with that user.
func createUser(dsn, user string) (string, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("servers: read the DSN: %w", err)
	}
	for _, statement := range []string{"CREATE USER " + user, "GRANT ALL ON " + cfg.DBName + ".* TO " + user} {
		if err := execute(dsn, statement); err != nil {
			return "", fmt.Errorf("servers: create a user: %w", err)
		}
	}
	cfg.User = user
	return cfg.FormatDSN(), nil
}

// execute runs one statement on a connection of its own.
func execute(dsn, statement string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // one connection, idle
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

func pingMySQL(dsn string) error { return execute(dsn, "DO 1") }

// mysqlVersion returns the version text of the server.
func mysqlVersion(dsn string) (string, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close() //nolint:errcheck // one connection, idle
	var version string
	err = db.QueryRow("SELECT CONCAT(@@version, ' ', @@version_comment)").Scan(&version)
	return version, err
}
