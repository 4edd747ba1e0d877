package mem_test

import (
	"testing"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/objstoretest"
)

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return mem.New() })
}
