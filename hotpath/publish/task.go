package publish

import "github.com/penstock-broker/penstock/internal/model/problem"

var errTask = problem.New(400, "invalid_task", "X-Broker-Task must be 1 to 128 bytes, without commas, control "+
	"characters and blanks around it.")

// setTask sets the task. A line may say that it has none. What is taken can stand in a list of tasks.
func (d *Draft) setTask(text []byte) error {
	d.task = string(text)
	if len(text) == 0 {
		return nil
	}
	if len(text) > 128 || text[0] == ' ' || text[len(text)-1] == ' ' {
		return errTask
	}
	for _, c := range text {
		if c < 0x20 || c == 0x7f || c == ',' {
			return errTask
		}
	}
	return nil
}
