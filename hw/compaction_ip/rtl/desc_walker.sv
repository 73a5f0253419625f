// Walks the descriptors: one list of tables per input, one list of blocks per table. One walker serves all inputs.
//
// Every descriptor carries a CRC-32C over its own bytes, its place in its list and (for tables) its input, so that
// neither a flipped bit nor a descriptor of somewhere else passes. The blocks found are queued two deep per input for
// the burst issuer; after the last one an end mark is queued. The layout of descriptors is in docs/design/compaction-engine.md.
module desc_walker #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         reset,
    input  logic         running,
    // the lists, written through the registers while nothing runs
    input  logic         list_write,
    input  logic [  3:0] list_input,
    input  logic         list_is_count,
    input  logic [ 31:0] list_data,
    // descriptor reads
    output logic         request_valid,
    input  logic         request_ready,
    output logic [ 28:0] request_word,
    output logic         request_is_table,
    input  logic         answer_valid,
    input  logic [ 63:0] answer_data,
    input  logic         answer_last,
    input  logic         answer_crc_good,
    // the queues of blocks
    output logic [N-1:0] queue_valid,
    input  logic [  3:0] queue_select,
    output logic [ 31:0] queue_address,
    output logic [ 23:0] queue_length,
    output logic         queue_end,
    input  logic [N-1:0] queue_pop,
    // counters and errors
    output logic         block_found,
    output logic [ 24:0] block_bytes,
    output logic         error_valid,
    output logic [  3:0] error_code,
    output logic [  3:0] error_input
);
  localparam logic [3:0] ERROR_DESCRIPTOR_CRC = 4'd2, ERROR_DESCRIPTOR_FIELD = 4'd3;
  localparam logic [23:0] TABLE_MARK = 24'h574154;

  localparam logic [2:0] PICK = 3'd0, READ = 3'd1, ASK = 3'd2, WAIT = 3'd3, CHECK = 3'd4, COMMIT = 3'd5, FAIL = 3'd6;
  logic [2:0] state;
  logic [3:0] current;

  // What is known per input, in LUT RAM: the list of tables and the table being walked.
  logic [31:0] list_next[16];
  logic [15:0] list_left[16];
  logic [15:0] table_ordinal[16];
  logic [31:0] table_base[16];
  logic [31:0] table_bytes[16];
  logic [28:0] block_next[16];
  logic [23:0] block_left[16];
  logic [23:0] block_ordinal[16];

  // Registers of the descriptor at hand.
  logic [31:0] at_list, at_base, at_bytes;
  logic [15:0] at_list_left, at_table_ordinal;
  logic [28:0] at_block;
  logic [23:0] at_block_left, at_block_ordinal;
  logic [63:0] words[3];
  logic [1:0] word_count;
  logic is_table, is_end, crc_good, fields_good;
  logic table_wraps;
  logic [31:0] unused_table_end;
  logic [32:0] block_end;
  logic [1:0] settled;

  // Queues: entries 2*i and 2*i+1 belong to input i.
  logic [56:0] queue[32];
  logic [N-1:0] write_bit, read_bit, full, done;
  logic push;
  logic [15:0] write_bit_wide, read_bit_wide, blocked;

  assign write_bit_wide = 16'(write_bit);
  assign read_bit_wide = 16'(read_bit);
  always_comb begin
    blocked = 16'hffff;
    for (int i = 0; i < N; i++) blocked[i] = full[i] | done[i];
  end
  assign {queue_end, queue_length, queue_address} = queue[{queue_select, read_bit_wide[queue_select]}];

  assign request_valid = state == ASK;
  assign request_is_table = is_table;
  // Table descriptors are 32-byte aligned, block descriptors 16-byte aligned: none crosses a burst's border.
  assign request_word = is_table ? {at_list[31:5], 2'b0} : {at_block[28:1], 1'b0};
  assign push = state == COMMIT && (is_end || !is_table);
  assign block_found = state == COMMIT && !is_table && !is_end;
  assign block_bytes = {1'b0, words[0][55:32]} + 25'd5;
  assign error_valid = state == FAIL;
  assign error_code = crc_good ? ERROR_DESCRIPTOR_FIELD : ERROR_DESCRIPTOR_CRC;
  assign error_input = current;

  for (genvar i = 0; i < N; i++) begin : g_queue
    // Two entries: full and empty are told apart by `queue_valid`.
    logic pushed;
    assign pushed = push && current == 4'(i);
    always_ff @(posedge clk) begin
      if (reset) begin
        write_bit[i]   <= 1'b0;
        read_bit[i]    <= 1'b0;
        queue_valid[i] <= 1'b0;
        full[i]        <= 1'b0;
        done[i]        <= 1'b0;
      end else begin
        if (pushed) write_bit[i] <= !write_bit[i];
        if (queue_pop[i]) read_bit[i] <= !read_bit[i];
        if (pushed != queue_pop[i]) begin
          queue_valid[i] <= pushed || full[i];
          full[i]        <= pushed && queue_valid[i];
        end
        if (pushed && is_end) done[i] <= 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (push) queue[{current, write_bit_wide[current]}] <= {is_end, words[0][55:32], at_base + words[0][31:0]};
  end

  // A count written through the registers also forgets what the last job left behind.
  logic write_list, write_table, write_block, from_csr;
  logic [3:0] write_at;
  assign from_csr = !running && list_write;
  assign write_at = from_csr ? list_input : current;
  assign write_list = state == COMMIT && is_table && !is_end;
  assign write_table = write_list;
  assign write_block = state == COMMIT && !is_end;
  always_ff @(posedge clk) begin
    if (write_list || (from_csr && !list_is_count)) list_next[write_at] <= from_csr ? list_data : at_list + 32'd32;
    if (write_list || (from_csr && list_is_count)) begin
      list_left[write_at]     <= from_csr ? list_data[15:0] : at_list_left - 16'd1;
      table_ordinal[write_at] <= from_csr ? 16'd0 : at_table_ordinal + 16'd1;
    end
    if (write_table) begin
      table_base[write_at]  <= words[0][31:0];
      table_bytes[write_at] <= words[0][63:32];
    end
    if (write_block) block_next[write_at] <= is_table ? words[1][31:3] : at_block + 29'd2;
    if (write_block || (from_csr && list_is_count)) begin
      block_left[write_at]    <= from_csr ? 24'd0 : is_table ? words[1][55:32] : at_block_left - 24'd1;
      block_ordinal[write_at] <= is_table ? 24'd0 : at_block_ordinal + 24'd1;
    end
  end

  always_ff @(posedge clk) begin
    at_list          <= list_next[current];
    at_list_left     <= list_left[current];
    at_table_ordinal <= table_ordinal[current];
    at_base          <= table_base[current];
    at_bytes         <= table_bytes[current];
    at_block         <= block_next[current];
    at_block_left    <= block_left[current];
    at_block_ordinal <= block_ordinal[current];
  end

  // The input to look at next: whoever comes next in turn, one per cycle.
  logic [3:0] following;
  assign following = current == 4'(N - 1) ? 4'd0 : current + 4'd1;

  // Two steps: the sums, then what is right about the fields.
  always_ff @(posedge clk) begin
    {table_wraps, unused_table_end} <= {1'b0, words[0][31:0]} + {1'b0, words[0][63:32]};
    block_end   <= {1'b0, words[0][31:0]} + {8'b0, block_bytes};
    fields_good <= is_table
        ? words[2][63:40] == TABLE_MARK && words[2][39:32] == {4'b0, current}
          && words[2][31:0] == {16'b0, at_table_ordinal} && !table_wraps && words[1][3:0] == 4'b0
          && words[1][63:56] == 8'b0
        : words[1][31:0] == {8'b0, at_block_ordinal} && words[0][63:56] == 8'b0 && words[0][55:35] != 21'b0
          && block_end <= {1'b0, at_bytes};
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      state       <= PICK;
      current     <= 4'd0;
      settled     <= 2'd0;
    end else begin
      settled <= state == CHECK ? settled + 2'd1 : 2'd0;
      unique case (state)
        // The context registers follow `current` by one cycle, hence READ.
        PICK: if (running) begin
          if (blocked[current]) current <= following;
          else state <= READ;
        end
        READ: begin
          is_table   <= at_block_left == 24'd0;
          is_end     <= at_block_left == 24'd0 && at_list_left == 16'd0;
          word_count <= 2'd0;
          state      <= at_block_left == 24'd0 && at_list_left == 16'd0 ? COMMIT : ASK;
        end
        ASK: if (request_ready) state <= WAIT;
        WAIT: if (answer_valid) begin
          if (word_count != 2'd3) words[word_count] <= answer_data;
          word_count <= word_count + 2'd1;
          crc_good   <= answer_crc_good;
          if (answer_last) state <= CHECK;
        end
        CHECK: if (settled == 2'd2) state <= crc_good && fields_good ? COMMIT : FAIL;
        COMMIT: begin
          state   <= PICK;
          current <= following;
        end
        default: state <= FAIL;
      endcase
    end
  end
endmodule
