package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// startMariaDB starts an empty MariaDB that flushes each commit and returns the DSN of an empty
// database. The sizes are those of a small production server, so that neither the pool nor the log
// limits the rate.
func startMariaDB(ctx context.Context, s *site, g *group) (dsn string, err error) {
	template, err := mariaDBTemplate(ctx, s)
	if err != nil {
		return "", err
	}
	data := filepath.Join(g.folder, "mariadb")
	if err := os.CopyFS(data, os.DirFS(template)); err != nil {
		return "", fmt.Errorf("copy the initialised data folder: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	p, err := g.start("mysql", syscall.SIGKILL, exec.Command(s.programs["mariadbd"], append(mariaDBArguments(data),
		"--port="+strconv.Itoa(port), "--bind-address=127.0.0.1", "--socket=mysql.sock", "--pid-file=mysql.pid",
		"--max-connections=500", "--skip-log-bin", "--performance-schema=OFF",
		"--innodb-buffer-pool-size=2G", "--innodb-log-file-size=1G",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON",
		"--innodb-fast-shutdown=2", // the data is removed with the folder
	)...))
	if err != nil {
		return "", err
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.Logger = "root", "tcp", loopback(port), &mysql.NopLogger{}
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		return "", fmt.Errorf("connect to MariaDB: %w", err)
	}
	defer db.Close()
	c.DBName = "penstock"
	return c.FormatDSN(), p.ready(ctx, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS penstock")
		return err
	})
}

// mariaDBTemplate initialises a data folder once; servers start from copies.
func mariaDBTemplate(ctx context.Context, s *site) (string, error) {
	data := filepath.Join(s.folder, "mariadb-template")
	if _, err := os.Stat(data); err == nil {
		return data, nil
	}
	out, err := exec.CommandContext(ctx, s.programs["mariadb-install-db"], append(mariaDBArguments(data),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("initialise MariaDB: %w\n%s\n%v", err, out, os.RemoveAll(data))
	}
	return data, nil
}

// mariaDBArguments are the common arguments of initialisation and operation. --no-defaults must
// come first.
func mariaDBArguments(data string) []string {
	args := []string{"--no-defaults", "--datadir=" + data}
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // it does not run as root without this
	}
	return args
}
