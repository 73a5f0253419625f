// Registers, counters and the life of a job.
//
//   Idle -> Clear -> Run -> Finished        all written and answered
//                    Run -> Stop -> Failed  an error: its code and input are held; no new bursts
//                    Run -> Stop -> Idle    soft reset in mid-job
// In Stop the bursts under way end, so that memory never sees half a burst; then the engine can be started again.
// The register map is in docs/design/compaction-engine.md.
module cip_control #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                      clk_i,
    input  logic                      rst_i,
    // register port
    input  cip_pkg::csr_req_t         csr_req_i,
    output cip_pkg::csr_data_t        csr_data_o,
    // settings
    output cip_pkg::record_settings_t record_settings_o,
    output cip_pkg::out_settings_t    out_settings_o,
    output cip_pkg::list_write_t      list_write_o,
    // the job
    output logic                      core_rst_o,
    output logic                      running_o,
    input  logic                      work_finished_i,
    input  logic                      memory_idle_i,
    input  logic                      progress_i,
    // the first error of the job
    input  logic                      error_valid_i,
    input  cip_pkg::error_t           error_i,
    // counters
    input  cip_pkg::events_t          events_i,
    input  cip_pkg::stalls_t          stalls_i,
    input  logic [NumInputs-1:0]      records_found_i,
    input  cip_pkg::addr_t            bytes_written_i,
    input  cip_pkg::block_length_t    blocks_written_i
);
  localparam int unsigned StartBit = 0;
  localparam int unsigned ResetBit = 1;
  localparam int unsigned ListBit = cip_pkg::CsrAddrWidth - 1;  // of an address: an input's register
  localparam int unsigned OutputAlign = 7;                      // addresses of outputs are multiples of 2**7
  localparam logic [2:0] CalmCycles = '1;

  typedef enum logic [2:0] {StIdle, StClear, StRun, StStop, StFinished, StFailed} state_e;
  state_e state_q, state_d;
  cip_pkg::error_t failure_q;
  logic failing_q, failing_d, start, soft_reset, expired_q, fails;
  logic [2:0] calm_q;
  cip_pkg::csr_data_t watchdog_limit_q, quiet_cycles_q;

  assign core_rst_o = state_q == StIdle || state_q == StClear;
  assign running_o  = state_q == StRun;
  assign start      = csr_req_i.write && csr_req_i.addr == cip_pkg::CsrCommand && csr_req_i.data[StartBit];
  assign soft_reset = csr_req_i.write && csr_req_i.addr == cip_pkg::CsrCommand && csr_req_i.data[ResetBit];

  assign list_write_o.valid    = csr_req_i.write && csr_req_i.addr[ListBit];
  assign list_write_o.id       = csr_req_i.addr[6:3];
  assign list_write_o.is_count = csr_req_i.addr[2];
  assign list_write_o.data     = csr_req_i.data;

  // ---- The job. Idle for eight cycles in a row: nothing is on its way between the units.
  assign fails = state_q == StRun && !soft_reset && (error_valid_i || expired_q);
  always_comb begin
    state_d   = state_q;
    failing_d = failing_q;
    unique case (state_q)
      StClear: state_d = StRun;
      StRun: begin
        if (soft_reset) state_d = StStop;
        else if (fails) begin
          state_d   = StStop;
          failing_d = 1'b1;
        end else if (work_finished_i) state_d = StFinished;
      end
      StStop: begin
        if (soft_reset) failing_d = 1'b0;
        if (memory_idle_i && calm_q == CalmCycles) state_d = failing_d ? StFailed : StIdle;
      end
      default: begin
        if (start) begin
          state_d   = StClear;
          failing_d = 1'b0;
        end else if (soft_reset) begin
          state_d   = StIdle;
          failing_d = 1'b0;
        end
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q        <= StIdle;
      failing_q      <= 1'b0;
      failure_q      <= '0;
      quiet_cycles_q <= '0;
      expired_q      <= 1'b0;
    end else begin
      state_q        <= state_d;
      failing_q      <= failing_d;
      quiet_cycles_q <= progress_i || state_q != StRun ? '0 : quiet_cycles_q + 32'd1;
      expired_q      <= quiet_cycles_q >= watchdog_limit_q;
      if (state_d == StClear) failure_q <= '0;
      else if (fails && error_valid_i) failure_q <= error_i;
      else if (fails) begin
        failure_q.code <= cip_pkg::ErrWatchdog;
        failure_q.id   <= cip_pkg::NoInput;
      end
    end
    if (state_q == StRun) calm_q <= '0;
    else if (state_q == StStop) calm_q <= memory_idle_i ? calm_q + 3'd1 : 3'd0;
  end

  // ---- Settings.
  cip_pkg::record_settings_t record_settings_q;
  cip_pkg::out_settings_t out_settings_q;
  assign record_settings_o = record_settings_q;
  assign out_settings_o    = out_settings_q;
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      record_settings_q.snapshot         <= '1;
      record_settings_q.bottom           <= 1'b0;
      record_settings_q.restart_interval <= 7'd16;
      record_settings_q.block_bytes      <= 24'd4096;
      watchdog_limit_q            <= 32'd100000;
    end else if (csr_req_i.write && state_q != StRun) begin
      unique case (csr_req_i.addr)
        cip_pkg::CsrSnapshotLow:  record_settings_q.snapshot[31:0] <= csr_req_i.data;
        cip_pkg::CsrSnapshotHigh: record_settings_q.snapshot[55:32] <= csr_req_i.data[23:0];
        cip_pkg::CsrRules: begin
          record_settings_q.restart_interval <= csr_req_i.data[14:8];
          record_settings_q.bottom           <= csr_req_i.data[0];
        end
        cip_pkg::CsrBlockBytes:   record_settings_q.block_bytes <= csr_req_i.data[23:0];
        cip_pkg::CsrOutBase:      out_settings_q.base <= {csr_req_i.data[31:OutputAlign], {OutputAlign{1'b0}}};
        cip_pkg::CsrOutWords:     out_settings_q.words_max <= csr_req_i.data[28:0];
        cip_pkg::CsrIndexBase:    out_settings_q.index_base <= {csr_req_i.data[31:OutputAlign], {OutputAlign{1'b0}}};
        cip_pkg::CsrIndexEntries: out_settings_q.index_entries_max <= csr_req_i.data[23:0];
        cip_pkg::CsrWatchdog:     watchdog_limit_q <= csr_req_i.data;
        default: ;
      endcase
    end
  end

  // ---- Counters, cleared when a job starts.
  cip_pkg::csr_data_t cycles_q, bytes_in_q, blocks_in_q, records_in_q, shadowed_q, vanished_q, written_q, checked_q;
  cip_pkg::csr_data_t waits_memory_q, waits_head_q, waits_filter_q, waits_value_q, waits_command_q, waits_write_q;
  cip_pkg::input_id_t arrived, arrived_q;
  always_comb begin
    arrived = '0;
    for (int i = 0; i < NumInputs; i++) arrived = arrived + cip_pkg::InputIdWidth'(records_found_i[i]);
  end
  always_ff @(posedge clk_i) begin
    arrived_q <= arrived;
    if (state_q == StClear) begin
      cycles_q        <= '0;
      bytes_in_q      <= '0;
      blocks_in_q     <= '0;
      records_in_q    <= '0;
      shadowed_q      <= '0;
      vanished_q      <= '0;
      written_q       <= '0;
      checked_q       <= '0;
      waits_memory_q  <= '0;
      waits_head_q    <= '0;
      waits_filter_q  <= '0;
      waits_value_q   <= '0;
      waits_command_q <= '0;
      waits_write_q   <= '0;
    end else begin
      records_in_q <= records_in_q + cip_pkg::CsrWidth'(arrived_q);
      if (running_o) begin
        cycles_q <= cycles_q + 32'd1;
        if (events_i.block_found) begin
          bytes_in_q  <= bytes_in_q + cip_pkg::CsrWidth'(events_i.block_bytes);
          blocks_in_q <= blocks_in_q + 32'd1;
        end
        if (events_i.shadowed) shadowed_q <= shadowed_q + 32'd1;
        if (events_i.vanished) vanished_q <= vanished_q + 32'd1;
        if (events_i.written) written_q <= written_q + 32'd1;
        if (events_i.block_checked) checked_q <= checked_q + 32'd1;
        if (stalls_i.memory) waits_memory_q <= waits_memory_q + 32'd1;
        if (stalls_i.head) waits_head_q <= waits_head_q + 32'd1;
        if (stalls_i.filter) waits_filter_q <= waits_filter_q + 32'd1;
        if (stalls_i.value) waits_value_q <= waits_value_q + 32'd1;
        if (stalls_i.command) waits_command_q <= waits_command_q + 32'd1;
        if (stalls_i.write) waits_write_q <= waits_write_q + 32'd1;
      end
    end
  end

  // ---- Reads.
  cip_pkg::csr_data_t status;
  assign status = {16'b0, 8'(NumInputs), 4'b0, state_q != StStop, failing_q, state_q == StFinished,
                   state_q == StRun || state_q == StClear || state_q == StStop};
  always_ff @(posedge clk_i) begin
    unique case (csr_req_i.addr)
      cip_pkg::CsrIdentity:     csr_data_o <= cip_pkg::Identity;
      cip_pkg::CsrStatus:       csr_data_o <= status;
      cip_pkg::CsrFailure:      csr_data_o <= {24'b0, failure_q};
      cip_pkg::CsrCycles:       csr_data_o <= cycles_q;
      cip_pkg::CsrBytesIn:      csr_data_o <= bytes_in_q;
      cip_pkg::CsrBlocksIn:     csr_data_o <= blocks_in_q;
      cip_pkg::CsrRecordsIn:    csr_data_o <= records_in_q;
      cip_pkg::CsrShadowed:     csr_data_o <= shadowed_q;
      cip_pkg::CsrVanished:     csr_data_o <= vanished_q;
      cip_pkg::CsrRecordsOut:   csr_data_o <= written_q;
      cip_pkg::CsrBytesOut:     csr_data_o <= bytes_written_i;
      cip_pkg::CsrBlocksOut:    csr_data_o <= cip_pkg::CsrWidth'(blocks_written_i);
      cip_pkg::CsrChecked:      csr_data_o <= checked_q;
      cip_pkg::CsrWaitsMemory:  csr_data_o <= waits_memory_q;
      cip_pkg::CsrWaitsHead:    csr_data_o <= waits_head_q;
      cip_pkg::CsrWaitsFilter:  csr_data_o <= waits_filter_q;
      cip_pkg::CsrWaitsValue:   csr_data_o <= waits_value_q;
      cip_pkg::CsrWaitsCommand: csr_data_o <= waits_command_q;
      cip_pkg::CsrWaitsWrite:   csr_data_o <= waits_write_q;
      default:                  csr_data_o <= '0;
    endcase
  end
endmodule
