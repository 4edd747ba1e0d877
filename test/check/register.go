package check

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an access does to a register.
type Kind uint8

const (
	Read  Kind = iota // Got is the answer
	Write             // New is written
	Swap              // New is written if the register holds Old; a Fail is the answer that it does not
)

// Access is one operation on a register: a value of metadata that has a name,
// and is empty before the first write.
type Access struct {
	Proc          int
	Register      string
	Kind          Kind
	Old, New, Got string
	Type          Type
	Start, End    int64 // ns
}

var (
	// ErrNotLinearizable: no order of the accesses explains the answers.
	ErrNotLinearizable = errors.New("not linearizable")
	// ErrUndecided: the search took longer than it may.
	ErrUndecided = errors.New("linearizability undecided")
)

// Linearizable says whether every register behaved as one value that changed at
// one moment during each access. The search takes at most limit.
func Linearizable(accesses []Access, limit time.Duration) error {
	byName := map[string][]porcupine.Operation{}
	for i, a := range accesses {
		if a.Type != OK && (a.Kind == Read || a.Kind == Write && a.Type == Fail) {
			continue // says nothing
		}
		end := a.End
		if a.Type == Info {
			end = math.MaxInt64 // it may still happen
		}
		// A process whose access never ended may do others: each gets a process of its own.
		byName[a.Register] = append(byName[a.Register], porcupine.Operation{ClientId: i, Input: a, Call: a.Start, Output: a, Return: end})
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(register, byName[name], limit) {
		case porcupine.Illegal:
			return fmt.Errorf("register %s: %w", name, ErrNotLinearizable)
		case porcupine.Unknown:
			return fmt.Errorf("register %s: %w in %v", name, ErrUndecided, limit)
		}
	}
	return nil
}

var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		a, now := input.(Access), state.(string)
		switch {
		case a.Kind == Read:
			return a.Got == now, now
		case a.Kind == Write:
			return true, a.New
		case a.Type == Fail:
			return a.Old != now, now
		case a.Old == now:
			return true, a.New
		}
		return a.Type == Info, now // a swap of unknown outcome may have been refused
	},
}
