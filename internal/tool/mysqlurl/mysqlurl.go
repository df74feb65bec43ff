// Package mysqlurl reads where a MySQL or MariaDB database is.
package mysqlurl

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// ErrForm means that a text is neither of the two forms. No error has the text in it, which has a password.
var ErrForm = errors.New("the DSN must be like mysql://user:password@host:3306/database or " +
	"user:password@tcp(host:3306)/database")

// Parse reads a DSN as a URL (mysql:, mariadb:), or as go-sql-driver writes it. The parameters of both are those of
// the driver.
func Parse(dsn string) (*mysql.Config, error) {
	scheme, _, _ := strings.Cut(dsn, ":")
	if !strings.EqualFold(scheme, "mysql") && !strings.EqualFold(scheme, "mariadb") {
		if !strings.Contains(dsn, "/") {
			return nil, ErrForm
		}
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, ErrForm
		}
		return c, nil
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return nil, ErrForm
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	c, err := mysql.ParseDSN("tcp(" + host + ")" + cmp.Or(u.EscapedPath(), "/") + "?" + u.RawQuery)
	if err != nil {
		return nil, ErrForm
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	return c, nil
}
