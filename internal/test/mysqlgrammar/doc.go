// Package mysqlgrammar holds the test that MySQL 8 can read what the store sends it. It has no other content.
//
// Other tests run the statements on MariaDB, which takes more than MySQL does. Here the parser of Vitess, whose grammar
// is that of MySQL 8, reads each statement of durable/testdata/mysql.sql and of the migrations.
//
// It is a module of its own: nothing else here needs Vitess.
package mysqlgrammar
