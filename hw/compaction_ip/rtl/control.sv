// Registers, counters and the life of a job.
//
//   IDLE -> CLEAR -> RUN -> DONE            all written and answered
//                    RUN -> STOP -> FAILED  an error: its code and input are held; no new bursts
//                    RUN -> STOP -> IDLE    soft reset in mid-job
// In STOP the bursts under way end, so that memory never sees half a burst; then the engine can be started again.
// The register map is in docs/design/compaction-engine.md.
module control #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         reset,
    // register port
    input  logic         csr_write,
    input  logic [  7:0] csr_address,
    input  logic [ 31:0] csr_write_data,
    output logic [ 31:0] csr_read_data,
    // settings
    output logic [ 55:0] snapshot,
    output logic         bottom,
    output logic [  6:0] restart_interval,
    output logic [ 23:0] block_bytes,
    output logic [ 31:0] out_base,
    output logic [ 28:0] out_words_max,
    output logic [ 31:0] index_base,
    output logic [ 23:0] index_entries_max,
    output logic         list_write,
    output logic [  3:0] list_input,
    output logic         list_is_count,
    output logic [ 31:0] list_data,
    // the job
    output logic         core_reset,
    output logic         running,
    input  logic         work_finished,
    input  logic         memory_idle,
    input  logic         progress,
    // errors: {code, input}, the highest bit of `errors` first
    input  logic [  4:0] errors,
    input  logic [ 39:0] error_details,
    // counters
    input  logic         count_block,
    input  logic [ 24:0] count_block_bytes,
    input  logic [N-1:0] count_records,
    input  logic         count_shadowed,
    input  logic         count_vanished,
    input  logic         count_written,
    input  logic         count_checked,
    input  logic [ 31:0] bytes_written,
    input  logic [ 23:0] blocks_written,
    input  logic         stall_memory,
    input  logic         stall_head,
    input  logic         stall_filter,
    input  logic         stall_value,
    input  logic         stall_command,
    input  logic         stall_write
);
  localparam logic [31:0] IDENTITY = 32'h57434901;
  localparam logic [7:0] ERROR_WATCHDOG = 8'hcf;

  localparam logic [2:0] IDLE = 3'd0, CLEAR = 3'd1, RUN = 3'd2, STOP = 3'd3, FINISHED = 3'd4, FAILED = 3'd5;
  logic [2:0] state;
  logic [7:0] failure;
  logic failing, start, soft_reset, expired;
  logic [2:0] calm;
  logic [31:0] watchdog_limit, quiet_cycles;

  assign core_reset = state == IDLE || state == CLEAR;
  assign running = state == RUN;
  assign start = csr_write && csr_address == 8'h04 && csr_write_data[0];
  assign soft_reset = csr_write && csr_address == 8'h04 && csr_write_data[1];

  assign list_write = csr_write && csr_address[7];
  assign list_input = csr_address[6:3];
  assign list_is_count = csr_address[2];
  assign list_data = csr_write_data;

  always_ff @(posedge clk) begin
    if (reset) begin
      state        <= IDLE;
      failing      <= 1'b0;
      failure      <= 8'd0;
      quiet_cycles <= 32'd0;
      expired      <= 1'b0;
    end else begin
      quiet_cycles <= progress || state != RUN ? 32'd0 : quiet_cycles + 32'd1;
      expired      <= quiet_cycles >= watchdog_limit;
      unique case (state)
        CLEAR: state <= RUN;
        RUN: begin
          calm <= 3'd0;
          if (soft_reset) state <= STOP;
          else if (errors != '0) begin
            failing <= 1'b1;
            for (int i = 0; i < 5; i++) if (errors[i]) failure <= error_details[8*i+:8];
            state <= STOP;
          end else if (expired) begin
            failing <= 1'b1;
            failure <= ERROR_WATCHDOG;
            state   <= STOP;
          end else if (work_finished) state <= FINISHED;
        end
        STOP: begin
          if (soft_reset) failing <= 1'b0;
          // Idle for eight cycles in a row: nothing is on its way between the units.
          calm <= memory_idle ? calm + 3'd1 : 3'd0;
          if (memory_idle && calm == 3'd7) state <= failing && !soft_reset ? FAILED : IDLE;
        end
        default: begin
          if (start) begin
            state   <= CLEAR;
            failing <= 1'b0;
            failure <= 8'd0;
          end else if (soft_reset) begin
            state   <= IDLE;
            failing <= 1'b0;
          end
        end
      endcase
    end
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      snapshot         <= '1;
      bottom           <= 1'b0;
      restart_interval <= 7'd16;
      block_bytes      <= 24'd4096;
      watchdog_limit   <= 32'd100000;
    end else if (csr_write && state != RUN) begin
      unique case (csr_address)
        8'h10: snapshot[31:0] <= csr_write_data;
        8'h14: snapshot[55:32] <= csr_write_data[23:0];
        8'h18: {restart_interval, bottom} <= {csr_write_data[14:8], csr_write_data[0]};
        8'h1c: block_bytes <= csr_write_data[23:0];
        8'h20: out_base <= {csr_write_data[31:7], 7'd0};
        8'h24: out_words_max <= csr_write_data[28:0];
        8'h28: index_base <= {csr_write_data[31:7], 7'd0};
        8'h2c: index_entries_max <= csr_write_data[23:0];
        8'h30: watchdog_limit <= csr_write_data;
        default: ;
      endcase
    end
  end

  // Counters, cleared when a job starts.
  logic [31:0] cycles, bytes_in, blocks_in, records_in, shadowed, vanished, written, checked;
  logic [31:0] waits_memory, waits_head, waits_filter, waits_value, waits_command, waits_write;
  logic [3:0] arrived;
  logic [3:0] arrived_sum;
  always_comb begin
    arrived_sum = 4'd0;
    for (int i = 0; i < N; i++) arrived_sum = arrived_sum + {3'b0, count_records[i]};
  end
  always_ff @(posedge clk) begin
    arrived <= arrived_sum;
    if (state == CLEAR) begin
      cycles        <= 32'd0;
      bytes_in      <= 32'd0;
      blocks_in     <= 32'd0;
      records_in    <= 32'd0;
      shadowed      <= 32'd0;
      vanished      <= 32'd0;
      written       <= 32'd0;
      checked       <= 32'd0;
      waits_memory  <= 32'd0;
      waits_head    <= 32'd0;
      waits_filter  <= 32'd0;
      waits_value   <= 32'd0;
      waits_command <= 32'd0;
      waits_write   <= 32'd0;
    end else begin
      records_in <= records_in + {28'b0, arrived};
      if (running) begin
        cycles        <= cycles + 32'd1;
        bytes_in      <= bytes_in + (count_block ? {7'b0, count_block_bytes} : 32'd0);
        blocks_in     <= blocks_in + {31'b0, count_block};
        shadowed      <= shadowed + {31'b0, count_shadowed};
        vanished      <= vanished + {31'b0, count_vanished};
        written       <= written + {31'b0, count_written};
        checked       <= checked + {31'b0, count_checked};
        waits_memory  <= waits_memory + {31'b0, stall_memory};
        waits_head    <= waits_head + {31'b0, stall_head};
        waits_filter  <= waits_filter + {31'b0, stall_filter};
        waits_value   <= waits_value + {31'b0, stall_value};
        waits_command <= waits_command + {31'b0, stall_command};
        waits_write   <= waits_write + {31'b0, stall_write};
      end
    end
  end

  logic [31:0] status;
  assign status = {16'b0, 8'(N), 4'b0, state != STOP, failing, state == FINISHED,
                   state == RUN || state == CLEAR || state == STOP};
  always_ff @(posedge clk) begin
    unique case (csr_address)
      8'h00: csr_read_data <= IDENTITY;
      8'h08: csr_read_data <= status;
      8'h0c: csr_read_data <= {24'b0, failure};
      8'h40: csr_read_data <= cycles;
      8'h44: csr_read_data <= bytes_in;
      8'h48: csr_read_data <= blocks_in;
      8'h4c: csr_read_data <= records_in;
      8'h50: csr_read_data <= shadowed;
      8'h54: csr_read_data <= vanished;
      8'h58: csr_read_data <= written;
      8'h5c: csr_read_data <= bytes_written;
      8'h60: csr_read_data <= {8'b0, blocks_written};
      8'h64: csr_read_data <= checked;
      8'h68: csr_read_data <= waits_memory;
      8'h6c: csr_read_data <= waits_head;
      8'h70: csr_read_data <= waits_filter;
      8'h74: csr_read_data <= waits_value;
      8'h78: csr_read_data <= waits_command;
      8'h7c: csr_read_data <= waits_write;
      default: csr_read_data <= 32'd0;
    endcase
  end
endmodule
