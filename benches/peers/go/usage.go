package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// usage contains the memory and processor time of this process.
type usage struct {
	rssKB, peakKB int
	cpuSeconds    float64
}

type usageLine struct {
	RSSKB  int `json:"rss_kb"`
	PeakKB int `json:"peak_kb"`
}

func (u usage) line() usageLine { return usageLine{RSSKB: u.rssKB, PeakKB: u.peakKB} }

func readUsage() usage {
	var result usage
	status, _ := os.ReadFile("/proc/self/status") // absent: zeros, which the report shows
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			result.rssKB, _ = strconv.Atoi(fields[1])
		case "VmHWM:":
			result.peakKB, _ = strconv.Atoi(fields[1])
		}
	}
	var times syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &times) == nil {
		seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
		result.cpuSeconds = seconds(times.Utime) + seconds(times.Stime)
	}
	return result
}
