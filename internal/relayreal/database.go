//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// freshDatabase makes an empty database on the server of dsn. It returns the
// DSN that selects it and a function that drops it.
func freshDatabase(ctx context.Context, dsn string) (string, func() error, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, errors.New("read the DSN of the MySQL server") // its text may hold a password
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", nil, err
	}
	// Only letters and digits: names cannot be parameters of a statement.
	name := "penstock_relay_" + rand.Text()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, errors.Join(fmt.Errorf("create a database: %w", err), db.Close())
	}
	cfg.DBName = name
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, "DROP DATABASE "+name)
		return errors.Join(err, db.Close())
	}
	return cfg.FormatDSN(), drop, nil
}
