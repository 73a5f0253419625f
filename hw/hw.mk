# Targets of the hardware: included by the Makefile.

.PHONY: area lint-hw soak-ip waves

area: ## Size, depth and plot of the compaction engine on the XC7Z045 (Yosys; about half an hour)
	scripts/setup-test.sh yosys python3
	hw/compaction_ip/area/run.sh

lint-hw: setup ## Verilator's warnings on the compaction engine, every size
	@for n in 1 2 3 4 5 6 7 8 9 10 11 12 13; do \
	    verilator --lint-only -Wall --assert -GNumInputs=$$n --top-module compaction_ip_sim \
	        -F hw/compaction_ip/compaction_ip.f hw/compaction_ip/tb/compaction_ip_sim.sv || exit 1; \
	done; echo "the compaction engine is clean for 1 to 13 inputs"

soak-ip: export WAYSTATION_IP_SIZES := 1,2,3,4,5,6,7,8,9,10,11,12,13
soak-ip: setup ## Thousands of random jobs, and every flipped bit of larger ones, through every size of the engine (JOBS=)
	WAYSTATION_IP_JOBS=$(or $(JOBS),2000) $(CARGO) test --release --locked -p waystation-drive --test suite equivalence::random -- --nocapture
	$(CARGO) test --release --locked -p waystation-drive --test suite larger -- --ignored --nocapture

# A simulation that records has a build of its own, so that nobody else's is slowed down.
waves: export WAYSTATION_IP_SIZES := 2
waves: setup ## The waveforms of one merge, recorded and drawn into docs/figures
	scripts/setup-test.sh python3
	mkdir -p docs/figures
	WAYSTATION_IP_TRACE=1 WAYSTATION_IP_VCD=$(abspath $(TARGET))/waves.vcd CARGO_TARGET_DIR=$(TARGET)/waves \
	    $(CARGO) test --locked -p waystation-drive --test suite waves:: -- --ignored
	hw/compaction_ip/waves/draw.py $(TARGET)/waves.vcd all >docs/figures/compaction-engine-merge.svg
	hw/compaction_ip/waves/draw.py $(TARGET)/waves.vcd records >docs/figures/compaction-engine-records.svg
