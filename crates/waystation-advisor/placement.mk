# The placement tool's own targets; included by the top Makefile.

.PHONY: validate-placement

validate-placement: ## The placement simulator against measured runs, and live where the kernel permits
	$(CARGO) run --release --quiet --locked --package waystation-cli -- place validate --data crates/waystation-advisor/testdata --live
