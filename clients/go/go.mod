module github.com/penstock-broker/penstock/clients/go

go 1.24
