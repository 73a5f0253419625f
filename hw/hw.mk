# Targets of the hardware: included by the Makefile.

.PHONY: area lint-hw soak-ip

area: ## Size and depth of the compaction engine on the XC7Z045 (Yosys; about half an hour)
	hw/compaction_ip/area/run.sh

lint-hw: ## Verilator's warnings on the compaction engine, every size
	@for n in 1 2 3 4 5 6 7 8 9 10 11 12 13; do \
	    verilator --lint-only -Wall --assert -GN=$$n --top-module compaction_ip hw/compaction_ip/rtl/*.sv || exit 1; \
	done; echo "the compaction engine is clean for 1 to 13 inputs"

soak-ip: ## Thousands of random jobs through the simulated engine
	WAYSTATION_IP_JOBS=$(or $(JOBS),2000) $(CARGO) test --release -p waystation-drive --test equivalence random -- --nocapture
