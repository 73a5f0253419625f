# The placement tool's own targets; included by the top Makefile.

.PHONY: validate-placement

# Without the programs (or root) the live part says "not run"; the measured runs are predicted all the same.
validate-placement: ## The placement simulator against measured runs, and live where the kernel permits (about 15 minutes)
	-scripts/setup-test.sh sqlite3 nginx-light wget
	$(CARGO) run --release --quiet --locked --package waystation-cli -- place validate --data crates/waystation-advisor/testdata --live
