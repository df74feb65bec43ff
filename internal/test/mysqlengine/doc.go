// Package mysqlengine holds the tests of the store on go-mysql-server, a server in Go that has the dialect, the
// types and the error numbers of MySQL 8. It has no other content.
//
//	server_test.go      starts the server in memory, on loopback; one transaction at a time for a database
//	rewrites_test.go    what the server cannot read or do and real MySQL can: left out of the text it gets
//	functions_test.go   functions of MySQL that the server has for other types only
//	statements_test.go  each statement of durable/testdata/mysql.sql, against statements.txt
//	exceptions_test.go  reads and writes that file
//
// MariaDB, on which the other tests run, takes more than MySQL does, and the grammar of MySQL (package mysqlgrammar)
// knows no types and no tables. Here the statements run on the tables of the migrations.
//
// statements.txt has what this server cannot do, each with the reason. A statement in it that runs fails the test:
// the file only becomes shorter. After a change of the store, -update writes it anew; reasons that are there stay,
// and whoever adds one looks the case up in the manual of MySQL 8 first.
//
// It is a module of its own: nothing else here needs the server.
package mysqlengine
