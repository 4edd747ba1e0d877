package arch

// edge is one side of the process: only the named packages may cross it.
// cmd and test wire and observe, so they may cross every edge.
type edge struct {
	name    string
	imports string   // package whose functions cross the edge
	funcs   []string // those functions
	allowed []string // packages that may call them
}

var edges = []edge{
	{
		name:    "local files",
		imports: "os",
		funcs: []string{"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "ReadDir", "Remove", "RemoveAll",
			"Rename", "Mkdir", "MkdirAll", "MkdirTemp", "Truncate", "Link", "Symlink", "Stat", "Lstat", "Chmod"},
		allowed: []string{"broker/log/vfs", "objstore/*", "controller", "cmd/*", "test/*"},
	},
	{
		name:    "sockets",
		imports: "net",
		funcs:   []string{"Dial", "DialTimeout", "DialTCP", "Listen", "ListenTCP", "ListenPacket", "ListenUDP"},
		allowed: []string{"wire", "cmd/*", "test/*"},
	},
}

// globals are functions that reach a process-wide value; many brokers run in
// one test process, so everything is handed to constructors instead.
var globals = map[string][]string{
	"log":      {"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf"},
	"log/slog": {"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log"},
	"github.com/prometheus/client_golang/prometheus":          {"MustRegister", "Register"},
	"github.com/prometheus/client_golang/prometheus/promauto": {"NewCounter", "NewGauge", "NewHistogram", "NewCounterVec", "NewGaugeVec", "NewHistogramVec"},
}
